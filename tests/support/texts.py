"""Texts that one format or another takes for something else."""

TEXTS = [
    *("", "NULL", "\\N", "\\.", " ", "a,b", 'say "hi"', "{x}", "'"),
    *("line\nfeed", "cr\r\n", "\t", "ü😀"),
]
