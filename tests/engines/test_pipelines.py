"""The pipelines write the same bytes on every engine for a fixed key, and survive what breaks on clusters."""

import contextlib
import glob
import importlib
import json
import os
import pathlib
import re
import signal
import sys
import urllib.request

import pyarrow.parquet as pq
import pytest

from dpbeam.engine.beam.messages import FILE_PREFIX
from dpbeam.jobs import beam_flags
from dpbeam.selectors.registry import selectors
from tests.support.disks import fill, small_disk
from tests.support.ledgers import without_times
from tests.support.long_items import write_long_items
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

FEWER = {"vote": ["--set=vote_trips=4"]}  # each is a stage of the job
#: name -> module below `pipelines`, its flags, the rows it releases at least
PIPELINES = {
    **{
        method: (
            "select_items",
            [f"--method={method}", *["--noisy_weights"] * selector.shows_weights, *FEWER.get(method, [])],
            50,
        )
        for method, selector in selectors().items()
    },
    "top-k": ("top_k", ["--k=20", "--noisy_counts"], 20),
    "count": ("count", ["--domain=LIST"], 41),
}
#: In such an order that methods of many trips meet engines on which a trip is cheap.
SELECTING = (
    *("spark-cluster", "flink-cluster", "flink-cluster-in-turns", "pyspark-cluster", "prism"),
    *("spark-embedded", "flink-embedded", "direct-2", "pyspark-local"),
)
#: Pipeline -> where it runs; hitting sets in test_resume, packing in test_packing, every kind in test_java.
OTHERS = {"top-k": "flink-cluster", "count": "pyspark-local"}


def combinations() -> list:
    """(engine, pipeline, shards): every engine and every selector, other pipelines on one engine."""
    methods = list(selectors())
    rounds = -(-len(methods) // len(SELECTING))
    chosen = [
        (engine, methods[(turn * len(SELECTING) + place) % len(methods)], 2 + (place + turn) % 6)
        for turn in range(rounds)
        for place, engine in enumerate(SELECTING)
        if turn == 0 or "embedded" not in engine
    ]
    others = [(engine, name, 3) for name, engine in OTHERS.items()]
    return [pytest.param(*row, marks=pytest.mark.engines) for row in dict.fromkeys([*chosen, *others])]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> str:
    """Four files of 12,000 users' pairs in random order; items so long that messages go through files as well."""
    folder = tmp_path_factory.mktemp("pairs")
    write_long_items(folder, users=12_000, items=4_000, files=4)
    held = pq.read_table(folder / "part-0.parquet")["item"].unique().to_pylist()[:40]
    (folder / "list.txt").write_text("\n".join([*held, "nobody holds it"]) + "\n")
    return str(folder / "*.parquet")


def command(pairs: str, folder: pathlib.Path, name: str, shards: int) -> list[str]:
    module, flags, _ = PIPELINES[name]
    flags = [flag.replace("LIST", str(pathlib.Path(pairs).parent / "list.txt")) for flag in flags]
    (folder / "temp").mkdir(exist_ok=True)
    return [
        *(
            sys.executable,
            "-m",
            f"pipelines.{module}",
            "--input",
            pairs,
            "--user_column=user",
            "--item_column=item",
        ),
        *("--epsilon=1", "--delta=1e-6", f"--num_shards={shards}", "--insecure_test_key=5e1ec7", *flags),
        *(f"--output={folder / 'out' / 'x'}", f"--temp_location={folder / 'temp'}"),
    ]


def run_here(argv: list[str]) -> None:
    """A command of `command`, in this process."""
    assert importlib.import_module(argv[2]).main([*argv[3:], "--quiet"]) == 0


def output(folder: pathlib.Path) -> dict[str, bytes]:
    """Output files by name; the ledger less the commit, which may move while the tests run in a work tree."""
    files = {}
    for path in (folder / "out").glob("*"):
        data = path.read_bytes()
        if path.suffix == ".json":
            data = json.dumps({**without_times(path), "code_revision": ""}).encode()
        files[path.name] = data
    return files


@pytest.fixture(scope="module")
def released(pairs, tmp_path_factory):
    """What the in-process runner writes, by pipeline."""
    made: dict[str, dict[str, bytes]] = {}

    def get(name: str) -> dict[str, bytes]:
        if name not in made:
            folder = tmp_path_factory.mktemp(f"direct-{name}")
            run_here(command(pairs, folder, name, 1))
            made[name] = output(folder)
            assert pq.read_table(glob.glob(f"{folder}/out/*.parquet")).num_rows >= PIPELINES[name][2]
        return made[name]

    return get


def assert_done(run, folder, expected):
    assert run.code == 0, run.log[-4000:]
    assert output(folder) == expected
    assert os.listdir(folder / "temp") == [], "private intermediates were left behind"


def assert_left_nothing(folder):
    assert output(folder) == {}
    assert os.listdir(folder / "temp") == []


@pytest.mark.parametrize(("name", "pipeline", "shards"), combinations())
def test_same_bytes_on_every_engine(name, pipeline, shards, engine, pairs, released, tmp_path):
    run = engine(name).run(command(pairs, tmp_path, pipeline, shards), tmp_path / "log")
    assert_done(run, tmp_path, released(pipeline))
    if not name.startswith("direct"):
        # RUNNING is told too, unless the job is over before it is asked for its state a second time.
        assert re.search(r"^dpbeam [a-z-]+: job state: DONE$", run.log, re.M), run.log
    if name.startswith("flink-cluster"):
        assert (
            len(
                re.findall(
                    r"^dpbeam [a-z-]+: job: http://\S+/#/job/running/[0-9a-f]{32}/overview$", run.log, re.M
                )
            )
            == 1
        )
        stages = re.findall(
            r"^dpbeam [a-z-]+: (reading|items of each user|.*\d, [a-z ]+|writing)\b", run.log, re.M
        )
        # The job is asked from time to time: short stages are missed, none is said twice or out of place.
        assert len(stages) == len(set(stages)), run.log
        assert "reading" not in stages[1:] and "writing" not in stages[:-1], run.log


def test_the_flags_of_the_job_servers_are_known(engine):
    """To renew the table: python -m dpbeam.jobs.beam_flags HOST:PORT HOST:PORT > dpbeam/data/job_server_flags.json"""
    flags = [flag for name in ("flink-cluster", "spark-cluster") for flag in engine(name).flags]
    servers = [flag.partition("=")[2] for flag in flags if flag.startswith("--job_endpoint=")]
    assert beam_flags.table_of_job_servers(*servers) == beam_flags.of_job_servers()


@pytest.mark.parametrize("name", ["prism", "flink-cluster", "pyspark-cluster"])
def test_bad_input_is_one_line_and_exit_code_two(name, engine, tmp_path):
    (tmp_path / "a.csv").write_text("user,item\n" + "u,i\n" * 50 + "only one\n")
    run = engine(name).run(command(str(tmp_path / "a.csv"), tmp_path, "basic", 1), tmp_path / "log")
    assert run.code == 2, run.log[-4000:]
    last = run.log.strip().splitlines()[-1]
    assert last.startswith("dpbeam select: error: ") and "a.csv:52: " in last
    assert_left_nothing(tmp_path)


def state_of(flink: str, job: str) -> str:
    with urllib.request.urlopen(f"http://{flink}/jobs/{job}", timeout=10) as answer:
        return json.load(answer)["state"]


def in_rounds(process, folder, stored="block-*") -> None:
    """Wait until a job has stored blocks of private data, made of messages that it also stored."""
    wait_until(
        lambda: process.poll() is not None or glob.glob(f"{folder}/temp/dpbeam-run-*/{stored}"),
        120,
        f"{stored} in the run's folder",
    )
    assert process.poll() is None, (folder / "log").read_text()[-4000:]
    assert glob.glob(f"{folder}/temp/dpbeam-run-*/{FILE_PREFIX}*"), "no message was large"


def kill_one(processes) -> bool:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):  # it has ended with its stage
            os.kill(process, signal.SIGKILL)
            return True
    return False


@pytest.mark.parametrize("name", ["flink-cluster", "pyspark-cluster"])
def test_a_killed_worker_does_not_change_the_release(name, engine, pairs, released, tmp_path):
    """In the rounds, once the pairs that blocks are made of were let go."""
    on = engine(name)
    before = set(on.python_workers())
    process = on.start(command(pairs, tmp_path, "mad2r", 4), tmp_path / "log")
    in_rounds(process, tmp_path, "pairs-gone")
    wait_until(lambda: kill_one(on.python_workers().keys() - before), 30, "a Python worker of the job")
    assert_done(on.finish(process, tmp_path / "log"), tmp_path, released("mad2r"))


@pytest.mark.parametrize(
    ("name", "number"), [("flink-cluster", signal.SIGINT), ("pyspark-cluster", signal.SIGTERM)]
)
def test_a_cancelled_job_leaves_nothing_and_runs_again(name, number, engine, pairs, released, tmp_path):
    on = engine(name)
    argv = command(pairs, tmp_path, "gsu", 4)  # long enough to be met in its rounds
    process = on.start(argv, tmp_path / "log")
    in_rounds(process, tmp_path)
    process.send_signal(number)
    run = on.finish(process, tmp_path / "log")
    assert run.code == 1, run.log[-4000:]
    assert run.log.strip().endswith("dpbeam select: error: interrupted")
    assert_left_nothing(tmp_path)
    if name == "flink-cluster":
        host, job = re.search(r"job: http://(\S+?)/#/job/running/([0-9a-f]{32})/overview", run.log).groups()
        wait_until(lambda: state_of(host, job) == "CANCELED", 30, "the end of the job on the cluster")
    # The cluster is well if the next test is; whether the place is, any engine can say.
    run_here(argv)
    assert output(tmp_path) == released("gsu")


@pytest.fixture
def full_disk(tmp_path):
    """The output folder on a filesystem with 4 kB left; needs the right to mount one."""
    with small_disk(tmp_path / "out") as folder:
        fill(folder)
        yield folder


@pytest.mark.parametrize("name", ["flink-cluster", "pyspark-local"])
def test_a_full_disk_fails_clearly_and_leaves_no_output(name, engine, pairs, full_disk, tmp_path):
    run = engine(name).run(command(pairs, tmp_path, "mad", 2), tmp_path / "log")
    assert run.code == 1, run.log[-4000:]
    last = run.log.strip().splitlines()[-1]
    assert last.startswith("dpbeam select: error: ") and "No space left on device" in last
    assert os.listdir(full_disk) == ["filler"]
    assert os.listdir(tmp_path / "temp") == []
