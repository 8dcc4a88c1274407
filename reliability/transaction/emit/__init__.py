"""The emission: txids, the items that each reads, and the requests for them."""
