"""Input and output: reading pairs from files, writing released items, generating data."""
