"""A runner that loses elements publishes nothing, wherever it loses them, and says so in one line."""

import glob
import json
import os
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpbeam.budget.store import BudgetStore
from dpbeam.cli import main
from dpbeam.engine.beam import blocks
from dpbeam.jobs import job
from dpbeam.selection.sizes import Sizes
from tests.cli.test_pack import QUICK, SUPPLIES, columns
from tests.cli.test_series import OPEN, write_night
from tests.simulation.inside import WithRelays
from tests.support import hostile
from tests.support.commands import COLUMNS, without_progress
from tests.support.hostile import FLAGS, Loss

#: Steps of Beam's own, in Create, Reshuffle and combiners.
BEAMS = re.compile(r"\(|/(AddRandomKeys|RemoveRandomKeys|KeyWithVoid|UnKey|InjectDefault)$")
PAIRS = ["--input=pairs.parquet", *COLUMNS, "--epsilon=3", "--delta=1e-4", "--output=out", "--quiet"]
BASIC = ["select", *PAIRS, "--method=basic"]
UNITS, BATCHES = "or doubled units of input", "or doubled batches of rows that were read"
ROWS, BLOCKS = "or doubled rows on their way to blocks", "or doubled blocks"
REPLIES, ARRIVING = r"replies to block \d", r"or doubled messages of blocks to shard \d"
OUTPUT = "or doubled rows of the output"
#: Command, its blocks and shards, and what is said where the first element of a step's inputs or outputs is lost. Where
#: several steps lose the same, one of them stands for all.
WAYS: dict[str, tuple[list[str], Sizes | None, dict[str, str]]] = {
    "one step": (
        BASIC,
        Sizes(3, 2, one_step=True),
        {
            "ReadInput/ReadUnits inputs": UNITS,
            "ReadInput/ReadUnits outputs": BATCHES,
            "UserBlocks/SubsamplePerUser/PartitionByUser outputs": ROWS,
            "UserBlocks/SubsamplePerUser/SamplePerUser outputs": BLOCKS,
            "Rounds/SendBlock outputs": BLOCKS,
            "Write/RouteToShards outputs": OUTPUT,
        },
    ),
    "stages": (
        ["select", *PAIRS, "--method=gsu", "--set=rounds=2"],
        Sizes(3, 2),
        {
            "Rounds/Trips/Trip1WeightPerUser/Weigh inputs": BLOCKS,
            "Rounds/Trips/Trip1WeightPerUser/Weigh outputs": REPLIES,
            "Rounds/Trips/Trip1GroupByItem/Sum inputs": REPLIES,
            "Rounds/Trips/Trip1RerouteExcess/Reply outputs": REPLIES,
            "Rounds/Trips/Trip2WeightPerUser/Weigh inputs": ARRIVING,
            "Rounds/Trips/Trip2WeightPerUser/Weigh outputs": ARRIVING,
            "Rounds/Trips/Trip2GroupByItem/Sum inputs": "or doubled results",
        },
    ),
    "relays": (
        BASIC,
        WithRelays(3, 2),
        {
            "Rounds/Trips/Trip1RelaySums/SumOfBlocks inputs": "or doubled messages from blocks to relays",
            "Rounds/Trips/Trip1RelaySums/SumOfBlocks outputs": "or doubled messages from blocks to shards",
        },
    ),
    "two shuffles": (BASIC, Sizes(3, 2), {"UserBlocks/SubsamplePerUser/PartitionAgain outputs": ROWS}),
    "jobs": (
        ["select", *PAIRS, "--method=gsu", "--set=rounds=2", "--checkpoint=kept", "--passes_per_job=1"],
        Sizes(3, 2),
        {"KeepForNextJob/Keep outputs": ARRIVING, "SaveCheckpoint inputs": "the checkpoint of a job"},
    ),
    "listed beside": (
        [*BASIC, "--public_items=listed.txt"],
        Sizes(3, 2),
        {"RemovePublicItems/Filter outputs": BATCHES, "PublicItems/Emit outputs": OUTPUT},
    ),
    "known": (
        [*BASIC, "--known=before", "--only_new", "--noisy_counts"],
        Sizes(3, 2),
        {"MarkNew outputs": OUTPUT},
    ),
    "hub": (
        ["top-k", *PAIRS, "--k=5", "--domain=listed.txt"],
        Sizes(3, 2),
        {
            "Rounds/Trips/Trip1MeetAtHub/Summarise outputs": REPLIES,
            "Rounds/Trips/Trip1MeetAtHub/Decide inputs": "a decision of the hub",
            "Rounds/Trips/Trip1MeetAtHub/Decide outputs": REPLIES,
            "Rounds/Trips/Trip1MeetAtHub/Wake outputs": REPLIES,
            "Rounds/Trips/Trip2MeetAtHub/Decide outputs": ARRIVING,
            "Write/Encode outputs": OUTPUT,
        },
    ),
    "pack": (
        ["pack", "--agents=agents.parquet", "--supplies=supplies.json", "--output=out", "--quiet", *QUICK],
        None,
        {
            "ReadAgents/ReadUnits outputs": BATCHES,
            "AgentBlocks/PartitionAgents outputs": ROWS,
            "AgentBlocks/BuildBlocks outputs": BLOCKS,
            "WriteAllocations/AsItems outputs": OUTPUT,
        },
    ),
}
#: Of a series' second night.
OF_A_NIGHT = {
    "Night/LeaveOutKnown outputs": BATCHES,
    "Night/ExtendBlocks outputs": "a block of the night",
    "Night/Gathered outputs": BLOCKS,
    "Night/Trip1WeightPerUser/Weigh outputs": "or doubled messages from blocks to shards",
    "Night/Arrive outputs": REPLIES,
    "Night/Rounds/Release inputs": "or doubled results",
}


@pytest.fixture
def place(tmp_path, monkeypatch, own_temp, pairs):
    """A working folder with all that the commands read."""
    monkeypatch.chdir(tmp_path)
    Path("listed.txt").write_text("".join(f"i{n}\n" for n in range(20)))
    Path("supplies.json").write_text(json.dumps(SUPPLIES))
    pq.write_table(pa.table(columns(60)), "agents.parquet")
    monkeypatch.setattr(hostile, "loss", Loss())


def ends(capsys, monkeypatch, command, loss: Loss) -> tuple[int, str]:
    """How a command ends on a runner that loses: exit code, errors and warnings."""
    monkeypatch.setattr(hostile, "loss", loss)
    code = main([*command, *FLAGS])
    return code, without_progress(capsys.readouterr().err)


def told(what: str) -> re.Pattern[str]:
    """The one line that says what was lost."""
    return re.compile(rf"dpbeam [a-z-]+: error: the runner lost {what}; nothing is published\n")


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_published(way, place, monkeypatch, capsys):
    command, sizes, losses = WAYS[way]
    if sizes is not None:
        monkeypatch.setattr(job, "choose_sizes", lambda *_, **__: sizes)
    if way == "two shuffles":
        monkeypatch.setattr(blocks, "FANOUT", 2)
    if "--known=before" in command:
        assert main([*BASIC, "--output=before"]) == 0
    there = set(os.listdir())
    for label, what in losses.items():
        loss = Loss(*label.split())
        code, said = ends(capsys, monkeypatch, command, loss)
        assert (loss.lost, code) == (1, 1) and told(what).fullmatch(said), f"{label}: {code} {said}"
        assert set(os.listdir()) <= there | {"kept"}, label
        assert not os.path.exists("kept") or os.listdir("kept") == []


def test_all_leaves_but_one(place, monkeypatch, capsys):
    """A runner that makes what one leaf of the graph needs, and nothing of the others."""
    monkeypatch.setattr(job, "choose_sizes", lambda *_, **__: Sizes(3, 2))
    command = [*BASIC, "--not_private_counts=counts.json"]
    whole = Loss()
    assert ends(capsys, monkeypatch, [*command, "--overwrite"], whole)[0] == 0
    assert len(whole.leaves) > 2
    for leaf in whole.leaves:
        if not BEAMS.search(leaf):
            loss = Loss(leaf, which=lambda _: True)
            code, said = ends(capsys, monkeypatch, [*command, "--overwrite"], loss)
            assert loss.lost and code == 1 and told(".*").fullmatch(said), leaf


def test_no_night_is_made(tmp_path, own_temp, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for night in (1, 2):
        write_night(f"n{night}.csv", night)
    assert main(["series", *OPEN]) == 0

    def run(night: int) -> list[str]:
        flags = [f"--night=2026-11-0{night}", f"--input=n{night}.csv", "--num_shards=2", "--quiet"]
        return ["series", "run", "--folder=f", *flags, *COLUMNS]

    assert ends(capsys, monkeypatch, run(1), Loss())[0] == 0
    kept = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    for label, what in OF_A_NIGHT.items():
        loss = Loss(*label.split())
        code, said = ends(capsys, monkeypatch, run(2), loss)
        assert (loss.lost, code) == (1, 1) and told(what).fullmatch(said), f"{label}: {code} {said}"
        assert {path: path.read_bytes() for path in kept} == kept
        assert not glob.glob("out/items-2026-11-02*")
    assert ends(capsys, monkeypatch, run(2), Loss())[0] == 0


def test_the_budget_is_given_back_and_the_next_run_pays_once(place, monkeypatch, capsys):
    account = ["--budget=b.db", "--dataset=d", "--release_id=r"]
    assert main(["budget", "create", *account[:2], "--epsilon=3", "--delta=1e-4", "--quiet"]) == 0
    for more in ([], ["--checkpoint=kept", "--passes_per_job=1"]):
        command = ["select", *PAIRS, "--method=gsu", "--set=rounds=2", *account, *more]
        label = "Trips/Trip2GroupByItem/Sum" if more else "Rounds/AllTrips"
        code, said = ends(capsys, monkeypatch, command, Loss(label, "outputs"))
        assert code == 1 and told(".*").fullmatch(said), said
        release = BudgetStore("b.db").account("d").releases["r"]
        assert release.state == "returned"
    assert ends(capsys, monkeypatch, command, Loss())[0] == 0
    account = BudgetStore("b.db").account("d")
    assert account.releases["r"].state == "committed" and glob.glob("out-*")


class TestUntestedRunners:
    @pytest.mark.parametrize(
        "command",
        [
            BASIC,
            ["top-k", *PAIRS, "--k=5"],
            ["hitting-set", *PAIRS, "--k=5"],
            ["count", *PAIRS, "--domain=listed.txt"],
            ["pack", "--agents=agents.parquet", "--supplies=supplies.json", "--output=out", *QUICK],
        ],
        ids=["select", "top-k", "hitting-set", "count", "pack"],
    )
    def test_are_refused(self, command, place, capsys):
        assert main([*command, FLAGS[0]]) == 2
        said = capsys.readouterr().err
        assert (
            f"error: {FLAGS[0].replace('=', ': ')} is not tested with dpbeam; take one of FnApiRunner" in said
        )
        assert "--untested_runner" in said and not glob.glob("out*")

    def test_of_a_series_too(self, tmp_path, own_temp, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        write_night("n1.csv", 1)
        assert main(["series", *OPEN]) == 0
        run = ["series", "run", "--folder=f", "--night=2026-11-01", FLAGS[0]]
        for what in (["--input=n1.csv", *COLUMNS], ["--empty"]):
            assert main([*run, *what]) == 2
            assert "HostileRunner is not tested with dpbeam" in capsys.readouterr().err

    def test_check_doubts_them(self, capsys):
        main(["check", FLAGS[0]])
        out = re.sub(r"\s+", "", capsys.readouterr().out)
        assert "warnrunner" in out and "--untested_runner" in out
