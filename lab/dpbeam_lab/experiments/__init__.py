"""Experiments: methods over datasets, budgets and grids of settings, as a file describes them. NOT PRIVATE. No jobs."""
