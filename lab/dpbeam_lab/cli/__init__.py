"""The commands of the lab, with the flags, checks and exit codes of dpbeam's own."""
