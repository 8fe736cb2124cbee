"""kill -9 at every step of a run that is charged to an account, then the same command again, twice.

One release fits into the account. Whatever was seen of the output when the process died is in the output that the retry
leaves, byte by byte; it is charged once; and the next retry changes nothing. Seen is whatever others can read, in any
file.
"""

import signal

import pytest

from tests.budget.conftest import postgresql, store_url  # noqa: F401  (fixtures)
from tests.support.kill_at import SHARDS, from_child, kills


@pytest.mark.engines  # some forty processes
@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_killed_at_every_step(tmp_path, store_url):  # noqa: F811
    """Of a run that replaces an output. With SQLite the simulator kills such runs, and those of new outputs."""
    steps = from_child(lambda: kills(tmp_path, store_url))
    # reserve, run, stage and its file, publish, journal, renames and ledger, removals, commit, count
    assert len(steps) >= 1 + 1 + 2 + 1 + 1 + SHARDS + 1 + 2 + 1 + 1 + SHARDS + 1
    states = [step["after"]["state"] for step in steps]
    assert set(states) == {None, "reserved", "publishing", "committed"}
    partly = 0
    for step in steps:
        assert step["killed"] == -signal.SIGKILL
        assert (step["retry"], step["again"]) == (0, 0), step["step"]
        retried = step["retried"]
        assert (retried["state"], retried["charged"], len(retried["shards"])) == ("committed", 1, SHARDS), (
            step["step"]
        )
        assert retried["ledger"]["release_id"] == "night" and retried["left"] == []
        seen = {path: text for path, text in step["after"]["shards"].items() if step["old"].get(path) != text}
        assert seen.items() <= retried["shards"].items(), f"step {step['step']} drew again what was out"
        # Of all files, wherever they lie: what could be read when it died is what was released, or was there before.
        released = {line for text in retried["shards"].values() for line in text.split()}
        readable = set(step["after"]["readable"]) - set(step["before"])
        assert readable <= released, f"step {step['step']} left a release that nobody paid for"
        assert not readable or step["after"]["state"] in ("publishing", "committed")
        assert set(retried["readable"]) - set(step["before"]) == released
        assert not set(step["old"].items()) & set(retried["shards"].items())
        assert step["result"]["budget"] == retried["ledger"]
        assert step["at_last"] == retried
        if step["after"]["ledger"] is not False:  # it stands for a whole output, old or new
            assert len(step["after"]["shards"]) == SHARDS and len(seen) in (0, SHARDS)
        partly += 0 < len(seen) < SHARDS
    assert partly == SHARDS - 1  # one died with half of the output in place
