"""Experiments: results equal those of the commands' front door, and a run that was stopped goes on."""

import itertools
import json
import multiprocessing
import os
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpbeam
from dpbeam.cli import main
from dpbeam_lab.experiments.cells import Result
from dpbeam_lab.experiments.journal import Journal
from dpbeam_lab.experiments.running import processes
from dpbeam_lab.synth import write_synthetic
from lab.tests.experiment_files import experiment
from tests.support.kill_at import in_child

SMALL = experiment(
    title="'Small'",
    datasets="{'zipf': synth(users=300, items=200, mean_items_per_user=8, seed=1)}",
    budgets="[(epsilon, 1e-4) for epsilon in [1, 3]]",
    repetitions="REPETITIONS",
    methods="[Run(method='basic'), Run(name='gsu2', method='gsu', rounds=2)]",
    sweep="{'max_items_per_user': [4, 20]}",
)


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.py"
    path.write_text(SMALL.replace("REPETITIONS", "2"))
    return path


def run(path, prefix, *flags) -> pa.Table:
    assert main(["evaluate", "run", str(path), f"--output={prefix}", "--quiet", *flags]) == 0
    return pq.read_table(f"{prefix}.parquet")


def without_time(table: pa.Table) -> list[dict]:
    return table.drop_columns("cpu_seconds").to_pylist()


def test_released_items_are_those_of_select(small, tmp_path):
    rows = run(small, tmp_path / "out", "--jobs=1").to_pylist()
    (path,) = write_synthetic(str(tmp_path / "data"), users=300, items=200, mean_items_per_user=8.0, seed=1)
    pairs = pq.read_table(path)
    released = [row for row in rows if row["measure"] == "released"]
    assert len(released) == 2 * 2 * 2 * 2
    for row in released:
        settings = {"rounds": 2} if row["method"] == "gsu2" else {}
        with pytest.warns(UserWarning, match="NOT PRIVATE"):
            expected = dpbeam.select(
                pairs,
                epsilon=row["epsilon"],
                delta=row["delta"],
                method=row["method"].removesuffix("2"),
                max_items_per_user=row["max_items_per_user"],
                insecure_test_key=f"evaluate 1 {row['repetition']}",
                **settings,
            )
        assert row["value"] == len(expected)
    assert np.ptp([row["value"] for row in released]) > 0


def test_a_histogram_has_what_is_measured_without_users(tmp_path):
    (tmp_path / "books").mkdir()
    counts = pa.table({"item": [f"{i}" for i in range(9)], "count": [1000 * i for i in range(9, 0, -1)]})
    pq.write_table(counts, tmp_path / "books" / "histogram.parquet")
    path = tmp_path / "ranks.py"
    methods = "[Run('top-k-known', mechanism='fast-joint', k=3)]"
    path.write_text(
        experiment(datasets="{'books': histogram('books')}", budgets="[(1, 1e-6)]", methods=methods)
    )
    rows = run(path, tmp_path / "out", f"--data={tmp_path}", "--jobs=1").to_pylist()
    measured = {row["measure"]: row["value"] for row in rows}
    assert measured["topk_linf"] == 0 and measured["released"] == 3
    assert "share_of_users" not in measured
    assert "share_of_users" not in (tmp_path / "out.md").read_text()


def lines(prefix) -> list[bytes]:
    path = Path(f"{prefix}.cells.jsonl")
    return path.read_bytes().splitlines(keepends=True) if path.exists() else []


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[Path, Path]:
    """A file of 5 x 8 cells, and the prefix of a run of it that nobody stopped."""
    folder = tmp_path_factory.mktemp("whole")
    path = folder / "small.py"
    path.write_text(SMALL.replace("REPETITIONS", "5"))
    run(path, folder / "out", "--jobs=1")
    return path, folder / "out"


def same(prefix, expected) -> None:
    tables, wanted = (pq.read_table(f"{one}.parquet") for one in (prefix, expected))
    assert tables.drop_columns("cpu_seconds").equals(wanted.drop_columns("cpu_seconds"), check_metadata=True)
    assert Path(f"{prefix}.md").read_bytes() == Path(f"{expected}.md").read_bytes()


def stopped(command: list[str], added: int, stop: int) -> int:
    """Exit code of a run in a process of its own, which gets a signal when it has added so many cells."""

    def work() -> int:
        add, times = Journal.add, itertools.count(1)

        def adding(journal: Journal, digest: str, result: Result) -> None:
            add(journal, digest, result)
            if next(times) == added:
                os.kill(os.getpid(), stop)

        Journal.add = adding  # of that process
        forks = multiprocessing.get_context("fork")  # they need not import anything
        multiprocessing.get_context = lambda _: forks
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return main(command)

    return in_child(work)


def test_a_run_that_was_stopped_goes_on(whole, tmp_path, capfd):
    """Interrupted with two processes, killed with one, torn in the middle of a line: the same bytes."""
    path, expected = whole
    prefix = tmp_path / "out"
    command = ["evaluate", "run", str(path), f"--output={prefix}", "--quiet"]
    finished: list[bytes] = []
    for stop, jobs, code in ((signal.SIGINT, 2, 1), (signal.SIGKILL, 1, -signal.SIGKILL)):
        assert stopped([*command, f"--jobs={jobs}"], 4, stop) == code
        if stop == signal.SIGINT:
            said = capfd.readouterr().err.splitlines()[-1]
            assert said == "dpbeam evaluate run: error: interrupted"
        assert lines(prefix)[: len(finished)] == finished
        assert len(lines(prefix)) == len(finished) + 4
        finished = lines(prefix)
        assert not Path(f"{prefix}.parquet").exists()
        with open(f"{prefix}.cells.jsonl", "ab") as file:
            file.write(b'{"cell": "torn')
    run(path, prefix, "--jobs=1")
    assert lines(prefix)[: len(finished)] == finished
    assert len({json.loads(line)["cell"] for line in lines(prefix)}) == len(lines(prefix)) == 41
    same(prefix, expected)


def test_what_is_finished_is_not_run_again(whole, tmp_path):
    """Nothing at all for the same file or another table; of a change, what changed."""
    path, expected = whole
    prefix = tmp_path / "out"
    Path(f"{prefix}.cells.jsonl").write_bytes(b"".join(lines(expected)))
    run(path, prefix)
    same(prefix, expected)
    changed = tmp_path / "changed.py"
    text = path.read_text()
    for old, new, cells in (
        ("title='Small'", "title='Large', tables=[]", 0),
        ("name='gsu2'", "name='other'", 0),
        ("[4, 20]", "[20, 4]", 0),
        ("[1, 3]", "[1, 2]", 20),
        ("rounds=2", "rounds=4", 20),
        ("repetitions=5", "repetitions=6", 8),
        ("repetitions=5", "repetitions=2", 0),
    ):
        before = len(lines(prefix))
        assert old in text
        changed.write_text(text.replace(old, new))
        rows = run(changed, prefix, "--jobs=1")
        assert len(lines(prefix)) - before == cells, new
        repetitions = 2 if new.endswith("=2") else 6 if new.endswith("6") else 5
        assert rows.num_rows == sum(row["measure"] == "released" for row in rows.to_pylist()) * (
            rows.num_rows // (8 * repetitions)
        )


def test_the_last_key_chooses_and_the_others_run_at_its_choice(whole, tmp_path, capsys):
    """The cells are those of the whole experiment that its table of the best shows, and it goes on after a stop."""
    path, expected = whole
    table = "tables=[Table('t', rows=['epsilon'], best='max_items_per_user')]"
    texts = {
        name: path.read_text().replace("title='Small'", f"title='Small', {table}{best}")
        for name, best in (("all", ""), ("best", ", best='max_items_per_user'"))
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
        Path(f"{tmp_path / name}.cells.jsonl").write_bytes(
            b"".join(lines(expected)[: 41 if name == "all" else 6])
        )
        run(tmp_path / f"{name}.py", tmp_path / name, "--jobs=1")
    assert Path(f"{tmp_path / 'best'}.md").read_bytes() == Path(f"{tmp_path / 'all'}.md").read_bytes()
    assert main(["evaluate", "run", str(tmp_path / "best.py"), "--dry_run"]) == 0
    assert capsys.readouterr().out == "24 runs\n"
    released = [
        row
        for row in pq.read_table(f"{tmp_path / 'best'}.parquet").to_pylist()
        if row["measure"] == "released"
    ]
    assert len(released) == 8 + 4 * 4
    for group in {(row["method"], row["epsilon"]) for row in released}:
        own = [row for row in released if (row["method"], row["epsilon"]) == group]
        last = {row["max_items_per_user"]: row["value"] for row in own if row["repetition"] == 4}
        assert {row["max_items_per_user"] for row in own if row["repetition"] < 4} == {
            max(last, key=last.get)
        }


def test_other_content_of_a_file_is_other_data(tmp_path):
    (data,) = write_synthetic(str(tmp_path / "d"), users=50, items=9, mean_items_per_user=5.0, format="csv")
    path = tmp_path / "files.py"
    dataset = f"{{'d': files(input=[{data!r}], user_column='user', item_column='item')}}"
    measured = "['released', 'share_of_entries']"
    path.write_text(experiment(datasets=dataset, budgets="[(9, 0.1)]", measures=measured))
    first = run(path, tmp_path / "out").to_pylist()
    assert len(lines(tmp_path / "out")) == 2
    os.utime(data)
    assert run(path, tmp_path / "out").to_pylist() == first
    with open(data, "a") as file:
        file.write("someone,else\n")
    again = run(path, tmp_path / "out").to_pylist()
    assert len(lines(tmp_path / "out")) == 4
    assert again[0]["users"] == first[0]["users"] + 1


def test_the_results_say_that_they_are_not_private(whole):
    _, prefix = whole
    assert pq.read_schema(f"{prefix}.parquet").metadata[b"dpbeam"] == b"not private: for public or test data"
    assert "Not private: for public or test data" in Path(f"{prefix}.md").read_text()
    assert (
        "| `missing_mass_1` | share | MM_1: pairs whose item is not released"
        in Path(f"{prefix}.md").read_text()
    )


def test_a_dataset_that_cannot_be_read(tmp_path, capsys):
    path = tmp_path / "wrong.py"
    dataset = "{'d': files(input=['nowhere.csv'], user_column='user', item_column='item')}"
    path.write_text(experiment(datasets=dataset, budgets="[(9, 0.1)]"))
    assert main(["evaluate", "run", str(path), f"--output={tmp_path}/out"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("dpbeam evaluate run: error: datasets.d: --input: ")


def test_memory_bounds_the_processes():
    assert processes(1_000, 1) == 1
    assert 1 <= processes(1_000, None) <= os.cpu_count()
    assert processes(10**12, None) == 1


def test_dry_run(small, tmp_path, capsys):
    assert main(["evaluate", "run", str(small), "--dry_run"]) == 0
    assert capsys.readouterr().out == "16 runs\n"
    assert list(tmp_path.iterdir()) == [small]
