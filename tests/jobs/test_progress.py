"""What a person sees of a job on its way: stages, share, time left, state and address; on a terminal and in a log."""

import io
import itertools
import re
import sys

import pytest

from dpbeam.jobs import progress as module
from dpbeam.jobs.progress import Progress, seconds_left, share_before, spelled


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves; nothing is refreshed but by the test."""
    monkeypatch.setattr(Progress, "_tick", lambda self: None)
    return Clock()


def stages(passes):
    """All stages of a job in their order."""
    yield "reading"
    yield f"items of each user; round 1 of {passes}, weights"
    for number in range(1, passes + 1):
        if number > 1:
            yield f"round {number} of {passes}, weights"
        yield f"round {number} of {passes}, sums and noise"
        yield f"round {number} of {passes}, values back"
    yield "writing"


class TestEstimate:
    @pytest.mark.parametrize("passes", [1, 4, 64])
    def test_shares_grow_from_stage_to_stage(self, passes):
        shares = [share_before(stage, passes) for stage in stages(passes)]
        assert shares[0] == 0 and shares[-1] < 1
        assert all(one < other for one, other in itertools.pairwise(shares))

    def test_more_passes_leave_more_to_do_after_reading(self):
        few, many = (share_before("items of each user", passes) for passes in (1, 64))
        assert many < few / 5

    def test_nothing_is_claimed_where_nothing_is_known(self):
        assert share_before("round 1 of 2, weights", 0) is None
        assert share_before("cancelling the job", 4) is None
        assert seconds_left(0.5, elapsed=3) is None
        assert seconds_left(0.01, elapsed=300) is None

    def test_the_rest_takes_as_long_as_what_is_done(self):
        assert seconds_left(0.25, elapsed=30) == pytest.approx(90)
        assert seconds_left(1.0, elapsed=30) == 0

    @pytest.mark.parametrize(
        "seconds,text", [(3, "10 s"), (44, "40 s"), (95, "2 min"), (3600, "60 min"), (7800, "2 h 10 min")]
    )
    def test_times_are_rough(self, seconds, text):
        assert spelled(seconds) == text


class TestLog:
    def lines(self, capsys):
        return capsys.readouterr().err.splitlines()

    def test_a_stage_is_said_once_and_a_long_one_every_minute(self, clock, capsys):
        share = [0.0]
        with Progress("job", enabled=True, passes=4, read=lambda: share[0], clock=clock) as progress:
            progress.stage("reading")
            progress.stage("reading")
            for _ in range(120):
                clock.now += 1
                share[0] += 1 / 240
                progress.refresh()
            assert self.lines(capsys) == [
                "job: reading",
                "job: reading (9% done, about 10 min left)",
                "job: reading (17% done, about 9 min left)",
            ]
            progress.stage("items of each user")
            assert self.lines(capsys) == ["job: items of each user (35% done, about 4 min left)"]

    def test_a_short_job_estimates_nothing(self, clock, capsys):
        with Progress("job", enabled=True, passes=2, clock=clock) as progress:
            for stage in stages(2):
                progress.stage(stage)
                clock.now += 1
                progress.refresh()
        assert self.lines(capsys) == [f"job: {stage}" for stage in stages(2)]

    def test_the_share_never_falls(self, clock):
        share = [0.9]
        with Progress("job", enabled=True, passes=1, read=lambda: share[0], clock=clock) as progress:
            progress.stage("reading")
            before = progress.share
            share[0] = 0.1
            assert progress.share == before > 0.4

    def test_state_and_address_are_lines(self, clock, capsys):
        with Progress("job", enabled=True, clock=clock) as progress:
            progress.job("job state: RUNNING")
            progress.job("job: http://a:1/#/job/running/7/overview")
        assert self.lines(capsys) == [
            "job: job state: RUNNING",
            "job: job: http://a:1/#/job/running/7/overview",
        ]

    def test_quiet_says_nothing(self, clock, capsys):
        with Progress("job", enabled=False, passes=4, clock=clock) as progress:
            progress.stage("reading")
            progress.job("job state: RUNNING")
            progress.follow(["ReadInput"])
            clock.now += 1000
            progress.refresh()
        assert capsys.readouterr() == ("", "")


class TestTerminal:
    def test_one_line_holds_stage_share_time_left_state_and_address(self, clock, monkeypatch):
        monkeypatch.setattr("sys.stderr", Terminal())
        monkeypatch.setenv("COLUMNS", "200")
        with Progress("job", enabled=True, passes=2, clock=clock) as progress:
            progress.job("job state: RUNNING")
            progress.job("job: http://a:1/#/[bold]")
            clock.now += 60
            progress.stage("round 2 of 2, weights")
            [task] = progress._bar.tasks
            assert task.description == "job: round 2 of 2, weights"
            assert task.completed == share_before("round 2 of 2, weights", 2) and task.total == 1
            assert task.fields == {"left": "about 10 s left", "job": "RUNNING http://a:1/#/[bold]"}
            progress.job("job state: CANCELLING")
            assert progress._bar.tasks[0].fields["job"] == "CANCELLING http://a:1/#/[bold]"
        shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sys.stderr.getvalue())
        assert (
            "job: round 2 of 2, weights" in shown
            and "about 10 s left CANCELLING http://a:1/#/[bold]" in shown
        )

    def test_without_known_passes_there_is_no_share(self, clock, monkeypatch):
        monkeypatch.setattr("sys.stderr", Terminal())
        with Progress("job", enabled=True, clock=clock) as progress:
            clock.now += 60
            progress.stage("reading")
            assert progress._bar.tasks[0].total is None
        assert "left" not in sys.stderr.getvalue() and "%" not in sys.stderr.getvalue()


class TestClusterSteps:
    """Flink names a fused stage by its outer transforms: `[4]Rounds/Trips/{Trip1AddNoise, Trip1Threshold}`."""

    FIRST = "CHAIN MapPartition (MapPartition at [3]{ReadInput, SelectPartitions}) -> FlatMap"
    USERS = (
        "CHAIN MapPartition (MapPartition at [2]{SelectPartitions, Rounds}) -> FlatMap (FlatMap at Out) -> "
        "GroupCombine (GroupCombine at GroupCombine: Rounds/Trips/Trip1GroupByItem/GroupByShard)"
    )
    SUMS = "MapPartition (MapPartition at [4]Rounds/Trips/{Trip1GroupByItem, Trip1AddNoise})"
    LAST = "MapPartition (MapPartition at [6]WriteReleased/{RouteToShards, SumReleased})"

    @pytest.fixture
    def told(self, monkeypatch, clock):
        stages = []
        progress = Progress("job", enabled=True, passes=2, clock=clock)
        monkeypatch.setattr(
            progress, "stage", lambda name: (stages.append(name), setattr(progress, "_stage", name))
        )
        return progress, stages

    def test_the_first_running_step_names_the_stage(self, told):
        progress, stages = told
        for steps in (
            ["DataSource (at Impulse)"],
            [self.FIRST, self.USERS],
            [self.USERS],
            [self.SUMS, self.LAST],
            [self.LAST],
        ):
            progress.follow(steps)
        assert stages == ["reading", "items of each user", "round 1 of 2, sums and noise", "writing"]

    def test_impulses_of_the_last_steps_do_not_end_the_job_at_its_start(self, told):
        progress, stages = told
        progress.follow([self.LAST])
        progress.follow([self.FIRST])
        progress.follow([self.LAST, "no name of ours"])
        assert stages == ["reading"]

    def test_it_never_goes_back(self, told):
        progress, stages = told
        progress.follow([self.SUMS])
        progress.follow([self.FIRST])
        assert stages == ["round 1 of 2, sums and noise"]


@pytest.mark.usefixtures("beams_runner")
def test_the_input_that_was_read_counts_as_share(tmp_path, monkeypatch):
    """Over the whole of a run in this process: from nothing read to all of it, and one input's share is its own."""
    from dpbeam.cli import main
    from dpbeam.io.sources import ReadInput

    for name in "abc":
        (tmp_path / f"{name}.csv").write_text("user,item\n" + "".join(f"{name}{u},i\n" for u in range(50)))
    made, seen = [], []
    monkeypatch.setattr(module.Progress, "stage", lambda self, name: seen.append((name, self._read())))
    original = ReadInput.__init__
    monkeypatch.setattr(
        ReadInput, "__init__", lambda self, *a, **k: (made.append(self), original(self, *a, **k))[1]
    )
    job = ["select", "--input", str(tmp_path / "*.csv"), "--user_column=user", "--item_column=item"]
    assert main([*job, "--epsilon=1", "--delta=1e-6", f"--output={tmp_path / 'out'}"]) == 0
    assert seen[0] == ("reading", None) and seen[-1] == ("writing", 1.0)
    assert [source.share_read() for source in made] == [1.0]
