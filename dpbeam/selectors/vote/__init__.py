"""Every user casts one vote, which passes from a full item to the next of the user's items; docs/vote.md."""
