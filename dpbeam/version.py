"""The version of dpbeam; `pyproject.toml` takes it from here."""

__version__ = "2.0.0"
