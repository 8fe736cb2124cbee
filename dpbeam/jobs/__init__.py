"""A run that is checked before it starts, paid once, and whose output is there as a whole or not at all."""
