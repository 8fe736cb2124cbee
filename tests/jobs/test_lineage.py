"""`--lineage_file`: what the classes of OpenLineage's own client hold, and nothing that is not public."""

import json
import os
import pathlib
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from openlineage.client import event_v2
from openlineage.client.generated import (
    error_message_run,
    job_type_job,
    output_statistics_output_dataset,
    processing_engine_run,
    schema_dataset,
)
from openlineage.client.generated.base import RunFacet
from openlineage.client.serde import Serde

from dpbeam.cli import main
from dpbeam.jobs import lineage
from dpbeam.jobs.exit_codes import ExitCode
from dpbeam.jobs.lineage import LineageFile
from dpbeam.jobs.result import RELEASED, describe
from tests.jobs.conftest import draw, flags, when_run

FILE = "--lineage_file=l.jsonl"


def events(path: str = "l.jsonl") -> list[dict[str, Any]]:
    """Of a file, each as the client's classes read and write it."""
    events = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]
    assert [event["eventType"] for event in events] in (["START", "COMPLETE"], ["START", "FAIL"])
    assert len({event["run"]["runId"] for event in events}) == 1
    for event in events:
        holds(Serde.to_dict(as_classes(event)), event)
    return events


def holds(theirs: Any, ours: Any, where: str = "") -> None:
    """That all of ours is in theirs, which may say more."""
    if isinstance(ours, dict):
        for name, value in ours.items():
            if value is not None:
                assert name in theirs, f"{where}.{name}"
                holds(theirs[name], value, f"{where}.{name}")
    elif isinstance(ours, list):
        assert len(ours) == len(theirs), where
        for number, value in enumerate(ours):
            holds(theirs[number], value, f"{where}[{number}]")
    else:
        assert theirs == ours, where


def as_classes(event: dict[str, Any]) -> event_v2.RunEvent:
    run, job = event["run"], event["job"]
    return event_v2.RunEvent(
        eventType=event_v2.RunState[event["eventType"]],
        eventTime=event["eventTime"],
        producer=event["producer"],
        run=event_v2.Run(runId=run["runId"], facets=facets(run.get("facets"))),
        job=event_v2.Job(job["namespace"], job["name"], facets=facets(job["facets"])),
        inputs=[event_v2.InputDataset(**one) for one in event["inputs"]],
        outputs=[
            event_v2.OutputDataset(
                one["namespace"],
                one["name"],
                facets=facets(one.get("facets")),
                outputFacets=facets(one.get("outputFacets")),
            )
            for one in event["outputs"]
        ],
    )


CLASSES = {
    "errorMessage": error_message_run.ErrorMessageRunFacet,
    "jobType": job_type_job.JobTypeJobFacet,
    "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet,
    "processing_engine": processing_engine_run.ProcessingEngineRunFacet,
    "schema": schema_dataset.SchemaDatasetFacet,
}


def facets(values: dict[str, Any] | None) -> dict[str, Any]:
    made = {}
    for name, facet in (values or {}).items():
        fields = {key: value for key, value in facet.items() if not key.startswith("_")}
        if name == "dpbeam_privacy":
            made[name] = RunFacet(producer=facet["_producer"]).with_additional_properties(**fields)
            continue
        if name == "schema":
            fields["fields"] = [schema_dataset.SchemaDatasetFacetFields(**one) for one in fields["fields"]]
        made[name] = CLASSES[name](**fields, producer=facet["_producer"])
    return made


class TestRuns:
    def test_released_and_again(self, place, monkeypatch):
        assert main(flags(FILE, "--input_names=full", "--result_file=r.json")) == 0
        start, end = events()
        assert end["eventType"] == "COMPLETE" and end["inputs"] == [
            {"namespace": "file", "name": "pairs.csv"}
        ]
        (output,) = end["outputs"]
        assert (output["namespace"], output["name"]) == ("file", str(place / "out"))
        fields = output["facets"]["schema"]["fields"]
        assert fields == [{"name": "item", "type": "string"}]
        numbers = output["outputFacets"]["outputStatistics"]
        assert (numbers["rowCount"], numbers["fileCount"]) == (2, 2)
        spent = end["run"]["facets"]["dpbeam_privacy"]
        assert (spent["epsilon"], spent["release_id"], spent["private"]) == (0.6, "night", True)
        assert start["outputs"] == [] and "facets" not in start["run"]
        when_run(monkeypatch, lambda: pytest.fail("ran"))
        assert main(flags(FILE, "--input_names=full")) == 0
        again = events()[1]
        assert again["eventType"] == "COMPLETE" and again["outputs"] == end["outputs"]
        assert again["run"]["runId"] != end["run"]["runId"]

    def test_a_run_that_fails(self, place, monkeypatch):
        def fails():
            assert not os.path.exists("l.jsonl")
            raise OSError(28, "SECRET")

        when_run(monkeypatch, fails)
        assert main(flags(FILE)) == 1
        end = events()[1]
        assert (end["eventType"], end["outputs"], end["job"]["name"]) == ("FAIL", [], "select.out")
        assert end["run"]["facets"]["errorMessage"]["message"] == "OSError; the run's stderr says more"
        assert "SECRET" not in pathlib.Path("l.jsonl").read_text()
        monkeypatch.undo()
        monkeypatch.chdir(place)
        when_run(monkeypatch, draw)
        assert main(flags(FILE)) == 0 and events()[1]["eventType"] == "COMPLETE"

    def test_a_command_line_that_cannot_be_parsed(self, place, capsys):
        assert main(flags(FILE, "--epsilom=3")) == 2
        message = events()[1]["run"]["facets"]["errorMessage"]["message"]
        assert message.startswith("unknown flag --epsilom")
        assert events()[1]["job"]["name"] == "select.out"

    def test_only_its_own_job_is_replaced(self, place, capsys):
        assert main(flags(FILE)) == 0
        before = pathlib.Path("l.jsonl").read_text()
        other = [*flags(FILE, epsilon="0.1"), "--output=other", "--release_id=other"]
        assert main(other) == 2
        assert "--lineage_file: 'l.jsonl' exists and tells of another release" in capsys.readouterr().err
        assert pathlib.Path("l.jsonl").read_text() == before

    def test_input_names_are_as_the_ledger_has_them(self, place):
        assert main(flags(FILE, "--input_names=none")) == 0
        assert events()[1]["inputs"] == [] and "pairs" not in pathlib.Path("l.jsonl").read_text()

    def test_the_namespace_of_other_integrations(self, place, monkeypatch):
        monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "nightly")
        assert main(flags(FILE)) == 0
        assert {event["job"]["namespace"] for event in events()} == {"nightly"}

    def test_nights_of_a_series_are_one_job(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        window = ["--folder=f", "--output=items", "--nights=2", "--epsilon=2", "--delta=1e-4", "--quiet"]
        assert main(["series", "open", *window]) == 0
        for night in ("1", "2"):
            argv = ["series", "run", "--folder=f", f"--night={night}", "--empty", FILE, "--quiet"]
            assert main(argv) == 0
            end = events()[1]
            assert end["job"]["name"] == "series.items" and end["eventType"] == "COMPLETE"
            assert end["outputs"][0]["name"] == str(tmp_path / f"items-{night}")


def file_of(tmp_path, ago: timedelta = timedelta()) -> LineageFile:
    file = LineageFile(str(tmp_path / "l.jsonl"), "--lineage_file")
    file.begin("pack")
    file.began = datetime.now(timezone.utc) - ago
    return file


def told(tmp_path, shards: list[dict], ago: timedelta = timedelta()) -> list[dict]:
    ledger = {"versions": {}, "release": {"inputs": None, "outputs": shards}}
    ledger |= dict.fromkeys(lineage._OF_LEDGER, "x")
    (tmp_path / "x.ledger.json").write_text(json.dumps(ledger))
    known = {"ledger": str(tmp_path / "x.ledger.json"), "items_released": 77, "private": True}
    result = describe("pack", {}, RELEASED, ExitCode.DONE, **known)
    (tmp_path / "l.jsonl").write_text(file_of(tmp_path, ago).text(result))
    return events(str(tmp_path / "l.jsonl"))


def test_no_rows_where_the_ledger_has_none(tmp_path):
    """As of shares, which each agent sees alone."""
    end = told(tmp_path, [{"name": "x-00000-of-00001.parquet", "rows": None, "sha256": None}])[1]
    output = json.dumps(end["outputs"]).replace(str(tmp_path), "")  # whose name may have any number
    assert "outputFacets" not in end["outputs"][0] and "77" not in output


def test_a_ledger_that_cannot_be_read_is_a_warning(tmp_path, capsys):
    known = {"ledger": str(tmp_path / "gone.ledger.json"), "items_released": 1, "private": True}
    file_of(tmp_path).tell(describe("pack", {}, RELEASED, ExitCode.DONE, **known))
    assert "warning: --lineage_file: " in capsys.readouterr().err and not (tmp_path / "l.jsonl").exists()


def test_no_time_is_finer_than_a_day(tmp_path):
    """A run that began yesterday ends at midnight, one of today when it began."""
    start, end = told(tmp_path, [], timedelta(days=1))
    assert end["eventTime"].endswith("T00:00:00Z") and start["eventTime"] < end["eventTime"]
    start, end = told(tmp_path, [])
    assert start["eventTime"] == end["eventTime"]


@pytest.mark.parametrize(
    "path,namespace,name",
    [
        ("/data/logs/*.parquet", "file", "/data/logs/*.parquet"),
        ("s3://bucket/logs/day", "s3://bucket", "logs/day"),
        ("hdfs://host:8020/logs", "hdfs://host:8020", "logs"),
        ("delta:s3://bucket/table", "s3://bucket", "table"),
        ("iceberg:prod.web.logs", "iceberg", "prod.web.logs"),
    ],
)
def test_names_of_datasets(path, namespace, name):
    assert lineage._dataset(path) == {"namespace": namespace, "name": name}
