"""Noisy shares of users that hold the items of a public list: a kind of release in a distribution of its own."""
