"""What Beam publishes of a job: elements per step are batches, blocks, messages and parts, no rows, users or items.

Beam counts the elements of every collection (`element_count`), whatever a pipeline does, and an engine shows them to
whoever may look at the job. One row per element would be the exact number of rows.
"""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.metrics import monitoring_infos
from apache_beam.runners.portability.fn_api_runner import fn_runner

from dpbeam.cli import main

pytestmark = pytest.mark.usefixtures("beams_runner")


@pytest.fixture
def counts(monkeypatch) -> dict[str, int]:
    """Collection -> its number of elements in the jobs that the test runs."""
    counters: dict[str, int] = {}
    run = fn_runner.FnApiRunner.run_via_runner_api

    def watched(self, proto, options):
        result = run(self, proto, options)
        result.wait_until_finish()
        for infos in result._monitoring_infos_by_stage.values():
            for info in infos:
                if info.urn == "beam:metric:element_count:v1":
                    counters[info.labels["PCOLLECTION"]] = monitoring_infos.extract_counter_value(info)
        return result

    monkeypatch.setattr(fn_runner.FnApiRunner, "run_via_runner_api", watched)
    return counters


def write(folder, kind: str, users: int) -> list[str]:
    """Input flags for so many users with 3 items each."""
    pairs = [(f"user {u}", f"item {i}") for u in range(users) for i in range(3)]
    path = folder / f"pairs.{kind}"
    columns = ["--input", str(path), "--user_column", "user", "--item_column", "item"]
    if kind == "parquet":
        pq.write_table(pa.table(dict(zip(("user", "item"), zip(*pairs)))), path)
    elif kind == "csv":
        path.write_text("user,item\n" + "".join(f"{u},{i}\n" for u, i in pairs))
    else:  # a file is a user
        for number in range(users):
            (folder / f"{number}.txt").write_text("alpha beta gamma\n")
        return ["--input", str(folder / "*.txt"), "--text_layout", "file"]
    return columns


@pytest.mark.parametrize(
    ("command", "kind"),
    [("select", "parquet"), ("select", "txt"), ("top-k", "csv")],
)
def test_elements_are_no_rows(command, kind, counts, tmp_path):
    method = ["--method=gsu", "--set=rounds=2"] if command == "select" else ["--k=2", "--selector=basic"]
    seen = []
    for users in (137, 200):
        folder = tmp_path / str(users)
        folder.mkdir()
        flags = [*method, "--epsilon=1", "--delta=1e-3", "--quiet", "--num_shards=2"]
        flags.append("--insecure_test_key=00ff")  # which shards have items depends on the key
        assert main([command, *write(folder, kind, users), *flags, f"--output={folder}/out/items"]) == 0
        assert counts
        seen.append(dict(counts))
        counts.clear()
    assert seen[0] == seen[1]  # 63 users more, and no count moves
    assert max(seen[0].values()) < 10


def test_rows_would_be_seen(counts):
    import apache_beam as beam

    with beam.Pipeline() as pipeline:
        _ = pipeline | beam.Create(range(137)) | beam.Map(str)
    assert 137 in counts.values()
