"""Attacks on the product: neighbours, transcripts, draws, choices, and the command from end to end."""
