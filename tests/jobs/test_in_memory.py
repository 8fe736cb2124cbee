"""One step in one process: messages stay in its memory, and the same is released as where they lie in files."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpbeam.cli import main
from dpbeam.engine.beam.store import RunStore
from dpbeam.jobs import job
from dpbeam.selection import sizes
from tests.support.instances import random_pairs

ALL = [
    "--method=mad",
    "--epsilon=5",
    "--delta=1e-3",
    "--max_items_per_user=20",
    "--insecure_test_key=0123abcd",
    "--quiet",
]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    path = tmp_path_factory.mktemp("in_memory") / "pairs.parquet"
    users, items = zip(*random_pairs(5, users=300, items=80), strict=True)
    pq.write_table(pa.table({"user": users, "item": items}), path)
    return path


@pytest.fixture
def select(pairs, tmp_path, monkeypatch):
    """Runs the command; returns what it released and the names of the messages' files."""

    def run(*more: str) -> tuple[list, list[str]]:
        names = []
        create = RunStore.create
        monkeypatch.setattr(
            RunStore, "create", lambda store, name: (names.append(name), create(store, name))[1]
        )
        output = [
            f"--input={pairs}",
            f"--output={tmp_path}/out",
            "--overwrite",
            f"--temp_location={tmp_path}/t",
        ]
        (tmp_path / "t").mkdir(exist_ok=True)
        assert main(["select", *output, *ALL, *more]) == 0
        monkeypatch.setattr(RunStore, "create", create)
        (shard,) = tmp_path.glob("out-*.parquet")
        assert list((tmp_path / "t").iterdir()) == []
        return pq.read_table(shard).to_pylist(), [name for name in names if name.startswith("sent-")]

    return run


@pytest.mark.usefixtures("beams_runner")
@pytest.mark.parametrize("method", ["mad2r", "gsu"])
def test_no_message_is_written_and_the_same_is_released(method, select):
    by_method = f"--method={method}"
    released, files = select(by_method)
    assert released and files == []
    again, files = select(by_method, "--num_shards=2")
    assert again == released and files


@pytest.mark.usefixtures("beams_runner")
@pytest.mark.parametrize(
    "flags", [["--direct_runner_bundle_repeat=1"], ["--direct_running_mode=multi_threading"]]
)
def test_steps_that_are_made_again_or_elsewhere_read_files(flags, select):
    released, files = select(*flags)
    assert files and released == select()[0]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_third_of_the_memory_and_none_for_a_chain_that_may_go_on(checkpoint, select, tmp_path, monkeypatch):
    monkeypatch.setattr(sizes, "PAIRS_IN_PROCESS", 10)
    monkeypatch.setattr(job, "available_memory", lambda: 3 * 10**9)
    asked, choose = [], job.choose_sizes

    def chosen(*args, **more):
        asked.append((more["room"], choose(*args, **more).one_step))
        return choose(*args, **more)

    monkeypatch.setattr(job, "choose_sizes", chosen)
    assert select(*([f"--checkpoint={tmp_path}/kept"] if checkpoint else []))[0]
    assert asked == [(0, False) if checkpoint else (10**9, True)]


def test_memory_decides_for_more_pairs(select, monkeypatch):
    monkeypatch.setattr(sizes, "PAIRS_IN_PROCESS", 10)
    monkeypatch.setattr(job, "available_memory", lambda: 10**9)
    released, files = select()
    assert released and files == []
    monkeypatch.setattr(job, "available_memory", lambda: 10**5)
    again, files = select()
    assert again == released and files
