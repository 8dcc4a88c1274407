"""The emission: txids, what each reads, and who asks for them."""
