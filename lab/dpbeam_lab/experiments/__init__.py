"""Experiments: what their files define (`define`, `sources`), cells in worker processes, results, tables, plots."""
