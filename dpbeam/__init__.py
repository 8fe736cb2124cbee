"""Apache Beam pipelines that release items from massive user data under differential privacy."""

__version__ = "0.1.0"
