"""Property tests run the same examples every time, without deadlines that a busy machine would miss."""

from hypothesis import settings

settings.register_profile("dpbeam", derandomize=True, deadline=None, database=None)
settings.load_profile("dpbeam")


def pytest_collection_modifyitems(items) -> None:
    """Fast tests first: a fault in the mathematics shows before the clusters start."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is not None)
