"""Counting users per item, exactly and with noise, for selections and for top-k alike."""
