"""The public functions on data in memory; they need no Beam."""
