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
from dpbeam.kernels.relays import Relays
from dpbeam.selection.sizes import Sizes
from tests.cli.test_pack import QUICK, SUPPLIES, columns
from tests.cli.test_series import OPEN, write_night
from tests.support import hostile
from tests.support.commands import COLUMNS, without_progress
from tests.support.hostile import FLAGS, Loss

MESSAGE = re.compile(
    r"dpbeam [a-z-]+: error: the runner (lost|doubled|did not come to) .*; nothing is published\n"
)
#: Steps of Beam's own, in Create, Reshuffle and combiners.
BEAMS = re.compile(r"\(|/(AddRandomKeys|RemoveRandomKeys|KeyWithVoid|UnKey|InjectDefault)$")
#: What may get lost: what is said twice, how many files the output takes, the names of the files.
SPARE = re.compile(
    r"CountReleased|EveryShard inputs|EveryShard outputs|(WriteShard|WriteFile|SaveCheckpoint) outputs"
)
PAIRS = ["--input=pairs.parquet", *COLUMNS, "--epsilon=3", "--delta=1e-4", "--output=out", "--quiet"]
BASIC = ["select", *PAIRS, "--method=basic"]
GROUPED = [
    "select",
    "--input=grouped.jsonl",
    "--input_layout=grouped",
    "--user_column=user",
    "--item_column=items",
]
#: Command, blocks and shards, and its steps where something is lost; of ways that share most steps their own.
WAYS = {
    "one step": (BASIC, Sizes(3, 2, one_step=True), ""),
    "stages": (["select", *PAIRS, "--method=gsu", "--set=rounds=2"], Sizes(3, 2), "Trip|Release"),
    "relays": (BASIC, None, "RelaySums"),
    "two shuffles": (BASIC, Sizes(3, 2), "PartitionAgain"),
    "jobs": (
        ["select", *PAIRS, "--method=gsu", "--set=rounds=2", "--checkpoint=kept", "--passes_per_job=1"],
        Sizes(3, 2),
        "Keep|SaveCheckpoint|Release",
    ),
    "listed beside": ([*BASIC, "--public_items=listed.txt"], Sizes(3, 2), "PublicItems"),
    "known": ([*BASIC, "--known=before", "--only_new", "--noisy_counts"], Sizes(3, 2), "MarkNew"),
    "dropped rows": ([*BASIC, "--not_private_counts=counts.json"], Sizes(3, 2), "StoreCounts"),
    "grouped": (
        [*GROUPED, "--epsilon=3", "--delta=1e-4", "--output=out", "--quiet", "--method=basic"],
        Sizes(3, 2),
        "ReadUnits|BuildBlocks",
    ),
    "hub": (["top-k", *PAIRS, "--k=5", "--domain=listed.txt"], Sizes(3, 2), "Trip[12]MeetAtHub|Write"),
    "pack": (
        ["pack", "--agents=agents.parquet", "--supplies=supplies.json", "--output=out", "--quiet", *QUICK],
        None,
        "ReadAgents|AgentBlocks|AsItems",
    ),
}


class WithRelays(Sizes):
    relays = Relays(2, 2, 1)


@pytest.fixture
def place(tmp_path, monkeypatch, own_temp, pairs):
    """A working folder with all that the commands read."""
    monkeypatch.chdir(tmp_path)
    Path("listed.txt").write_text("".join(f"i{n}\n" for n in range(20)))
    rows = pq.read_table("pairs.parquet").group_by("user").aggregate([("item", "list")]).to_pylist()
    rows = [{"user": row["user"], "items": row["item_list"]} for row in rows]
    Path("grouped.jsonl").write_text("\n".join(map(json.dumps, rows)))
    Path("supplies.json").write_text(json.dumps(SUPPLIES))
    pq.write_table(pa.table(columns(60)), "agents.parquet")
    monkeypatch.setattr(hostile, "loss", Loss())


def ends(capsys, monkeypatch, command, loss: Loss) -> tuple[int, str]:
    """How a command ends on a runner that loses: exit code, errors and warnings."""
    monkeypatch.setattr(hostile, "loss", loss)
    code = main([*command, *FLAGS])
    return code, without_progress(capsys.readouterr().err)


def remove_output() -> None:
    for path in [*glob.glob("out*"), *glob.glob("counts.json")]:
        os.unlink(path)


def is_told(label: str, mine: str) -> bool:
    """Whether a loss of the inputs or outputs of a step, one of a way's own, must be told."""
    step = label.rsplit(maxsplit=1)[0]
    return not BEAMS.search(step) and re.search(mine, step) is not None and not SPARE.search(label)


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_published(way, place, monkeypatch, capsys):
    command, sizes, mine = WAYS[way]
    if sizes is not None or way == "relays":
        sizes = sizes or WithRelays(3, 2)
        monkeypatch.setattr(job, "choose_sizes", lambda *_, **__: sizes)
    if way == "two shuffles":
        monkeypatch.setattr(blocks, "FANOUT", 2)
    if "--known=before" in command:
        assert main([*BASIC, "--output=before"]) == 0
    whole = Loss()
    assert ends(capsys, monkeypatch, command, whole)[0] == 0
    assert glob.glob("out*ledger.json") and not whole.lost
    remove_output()
    tried, there = 0, set(os.listdir())
    for step in dict.fromkeys(whole.steps):
        for of in ("inputs", "outputs"):
            label = f"{step} {of}"
            if not is_told(label, mine) or (
                is_told(f"{whole.feeds.get(step)} outputs", mine) and of == "inputs"
            ):
                continue
            loss = Loss(step, of)
            code, told = ends(capsys, monkeypatch, command, loss)
            if loss.lost:
                tried += 1
                assert (code, bool(MESSAGE.fullmatch(told))) == (1, True), f"{label}: {code} {told}"
                assert set(os.listdir()) <= there | {"kept"}, label
                assert not os.path.exists("kept") or os.listdir("kept") == []
            remove_output()
    assert tried


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
            code, told = ends(capsys, monkeypatch, [*command, "--overwrite"], loss)
            assert loss.lost and code == 1 and MESSAGE.fullmatch(told), leaf


def test_no_night_is_made(tmp_path, own_temp, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for night in (1, 2):
        write_night(f"n{night}.csv", night)
    assert main(["series", *OPEN]) == 0

    def run(night: int) -> list[str]:
        flags = [f"--night=2026-11-0{night}", f"--input=n{night}.csv", "--num_shards=2", "--quiet"]
        return ["series", "run", "--folder=f", *flags, *COLUMNS]

    whole = Loss()
    assert ends(capsys, monkeypatch, run(1), whole)[0] == 0
    kept = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    own = (  # where one step alone feeds another, the outputs of the one are the inputs of the other
        "(ReadUnits|LeaveOutKnown|Gathered|Trip1WeightPerUser/Weigh|Trip2WeightPerUser/Weigh) outputs"
        "|ExtendBlocks|Arrive|Release inputs"
    )
    steps = [*whole.steps, "Night/Gathered"]  # of the second night on
    tried = set()
    for label in (f"{step} {of}" for step in dict.fromkeys(steps) for of in ("inputs", "outputs")):
        if BEAMS.search(label.split()[0]) or not re.search(own, label):
            continue
        loss = Loss(*label.split())
        code, told = ends(capsys, monkeypatch, run(2), loss)
        assert loss.lost and (code, bool(MESSAGE.fullmatch(told))) == (1, True), f"{label}: {code} {told}"
        assert {path: path.read_bytes() for path in kept} == kept
        assert not glob.glob("out/items-2026-11-02*")
        tried.add(label)
    assert len(tried) == 10
    assert ends(capsys, monkeypatch, run(2), Loss())[0] == 0


def test_the_budget_is_given_back_and_the_next_run_pays_once(place, monkeypatch, capsys):
    account = ["--budget=b.db", "--dataset=d", "--release_id=r"]
    assert main(["budget", "create", *account[:2], "--epsilon=3", "--delta=1e-4", "--quiet"]) == 0
    for more in ([], ["--checkpoint=kept", "--passes_per_job=1"]):
        command = ["select", *PAIRS, "--method=gsu", "--set=rounds=2", *account, *more]
        label = "Trips/Trip2GroupByItem/Sum" if more else "Rounds/AllTrips"
        code, told = ends(capsys, monkeypatch, command, Loss(label, "outputs"))
        assert code == 1 and MESSAGE.fullmatch(told), told
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
        told = capsys.readouterr().err
        assert (
            f"error: {FLAGS[0].replace('=', ': ')} is not tested with dpbeam; take one of FnApiRunner" in told
        )
        assert "--untested_runner" in told and not glob.glob("out*")

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
