"""Nobody waits for what cannot be held."""

import pytest

from dpbeam.errors import InputError
from dpbeam_lab import room


def test_what_is_not_held_is_refused_in_words(tmp_path, monkeypatch):
    with pytest.raises(
        InputError, match=r"^--x: needs about 2e\+03 EB in '/', where [0-9.]+ [kMGT]B are free$"
    ):
        room.check_disk("--x", 2e21, "/no/such/folder")
    monkeypatch.setattr(room, "available_memory", lambda: 1234)
    with pytest.raises(InputError, match=r"^--x: needs about 5 MB of memory, where 1.23 kB are available$"):
        room.check_memory("--x", 5e6)
    room.check_memory("--x", 1234)
    room.check_disk("--x", 1, str(tmp_path / "new"))
