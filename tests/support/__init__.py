"""Shared helpers of the tests: instances, slow references, the replay harness, statistics."""
