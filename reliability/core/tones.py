"""What the words for states mean to a person: what is good, what is at work, what is wrong.

The command line gives each tone a colour, and the page a colour and each word a sign.
"""

from __future__ import annotations

_WORDS = {
    "good": "ok, up to date, committed, complete, satisfied, done, yes, exact, passed, replayed",
    "busy": "working, processing, processed, sealing, running, open, emitting, waiting",
    "bad": "fail, failed, blocked, missing, no, surplus, different, expired, given_up, closed",
    "warn": "held, parked, paused, skipped, excluded, quarantined, late, changed, to_replay, "
    "warning, unknown, fenced, rolled_back",
    "past": "replaced, dry_run",
}
_TONES = {word: tone for tone, words in _WORDS.items() for word in words.split(", ")}


def tone_of(word: str) -> str:
    """Return good, busy, bad, warn or past; empty if the word has no meaning.

    >>> tone_of("held"), tone_of("COMMITTED"), tone_of("rolled back"), tone_of("heldover")
    ('warn', 'good', 'warn', '')
    """
    word = word.lower()
    return _TONES.get(word) or _TONES.get(word.replace(" ", "_"), "")
