"""Property tests run the same examples every time, without deadlines that a busy machine would miss."""

from hypothesis import settings

settings.register_profile("dpbeam", derandomize=True, deadline=None, database=None)
settings.load_profile("dpbeam")
