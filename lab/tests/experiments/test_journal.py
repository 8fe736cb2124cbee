"""The journal: whole lines count, a torn one is taken off, one run at a time."""

import pytest

from dpbeam.errors import InputError
from dpbeam_lab.experiments.journal import Journal

RESULT = {"values": [["released", None, None, 3.0]], "cpu_seconds": 0.5}


def test_a_torn_line_is_taken_off(tmp_path):
    path = tmp_path / "cells.jsonl"
    journal = Journal(str(path))
    journal.add("a", RESULT)
    journal.add("b", RESULT)
    journal.close()
    whole = path.read_bytes()
    for cut in range(1, 20):
        path.write_bytes(whole[:-cut])
        journal = Journal(str(path))
        assert journal.results == {"a": RESULT}
        journal.add("b", RESULT)
        journal.close()
        assert path.read_bytes() == whole


def test_a_file_of_something_else_is_left_alone(tmp_path):
    path = tmp_path / "cells.jsonl"
    for text in ("letters\n", '{"cell": 1}\n', "[]\n"):
        path.write_text(text)
        with pytest.raises(InputError, match="does not hold cells of an experiment"):
            Journal(str(path))
        assert path.read_text() == text


def test_one_run_at_a_time(tmp_path):
    journal = Journal(str(tmp_path / "cells.jsonl"))
    with pytest.raises(InputError, match="another run is writing"):
        Journal(str(tmp_path / "cells.jsonl"))
    journal.close()
    Journal(str(tmp_path / "cells.jsonl")).close()
    with pytest.raises(InputError, match="cannot write"):
        Journal(str(tmp_path / "nowhere" / "cells.jsonl"))
