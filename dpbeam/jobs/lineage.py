"""`--lineage_file FILE`: a run as events of OpenLineage, for who collects which job made which data from which.

Two lines of JSON when the run ends, START and COMPLETE or FAIL, of nothing but what the result file and the ledger say;
so a run ends, in the file, on the day that its ledger names, and not at an hour that would tell how long it took. The
file is removed, written and replaced as that of `--result_file` is.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import IO, Any
from urllib.parse import urlsplit

from dpbeam.accounting.release import STARTED_FORMAT, as_text
from dpbeam.io.new_files import LEDGER_SUFFIX
from dpbeam.io.paths import absolute, is_local, table_format
from dpbeam.jobs.result_file import FAILED, REFUSED, ResultFile
from dpbeam.version import __version__

#: Environment variable with the namespace of jobs, as other integrations read it, and its default.
NAMESPACE_VARIABLE, NAMESPACE = "OPENLINEAGE_NAMESPACE", "dpbeam"
_PRODUCER = f"urn:dpbeam:{__version__}"
_SPEC = "https://openlineage.io/spec"
_CORE = f"{_SPEC}/2-0-2/OpenLineage.json#/$defs"
#: Facets and the versions of their schemas.
_FACETS = {
    "ErrorMessageRunFacet": "1-0-1",
    "JobTypeJobFacet": "2-0-4",
    "OutputStatisticsOutputDatasetFacet": "1-0-2",
    "ProcessingEngineRunFacet": "1-1-1",
    "SchemaDatasetFacet": "1-2-0",
}
_OF_LEDGER = ("method", "accounting", "epsilon", "delta", "privacy_unit", "neighbouring_relation")


class LineageFile(ResultFile):
    """The file of one run."""

    MARKS = frozenset({"eventType", "eventTime", "run", "job", "producer"})

    def read(self, file: IO[str]) -> Any:
        return json.loads(file.read().splitlines()[-1])

    def replaceable(self, earlier: Mapping[str, Any], said: Mapping[str, Any]) -> bool:
        """It tells of a run that failed, or of the same job."""
        same = earlier["job"] == _job(self.command, said)
        return bool(said.get("overwrite", False) or earlier["eventType"] == "FAIL" or same)

    def text(self, result: Mapping[str, Any]) -> str:
        """Two events, one a line."""
        ledger, columns = _released(result["ledger"], result["outputs"])
        release = ledger.get("release") or {}
        shared = {
            "producer": _PRODUCER,
            "schemaURL": f"{_CORE}/RunEvent",
            "job": _job(self.command, self.about),
            "inputs": [_dataset(name) for name in release.get("inputs") or ()],
        }
        outputs, run_id = [], str(uuid.uuid4())
        if result["ledger"] is not None:
            outputs = [_output(result["ledger"].removesuffix(LEDGER_SUFFIX), release, columns)]
        today = datetime.now(timezone.utc).replace(hour=0, minute=0, second=0)
        end = "FAIL" if result["status"] in (FAILED, REFUSED) else "COMPLETE"
        first, last = self.began.strftime(STARTED_FORMAT), max(self.began, today).strftime(STARTED_FORMAT)
        run = {"runId": run_id, "facets": _run_facets(result, ledger)}
        events = [
            {"eventType": "START", "eventTime": first, **shared, "run": {"runId": run_id}, "outputs": []},
            {"eventType": end, "eventTime": last, **shared, "run": run, "outputs": outputs},
        ]
        return "".join(f"{json.dumps(event)}\n" for event in events)


def _job(command: str, said: Mapping[str, Any]) -> dict[str, Any]:
    """Named by the command and its output, without the folder and the night, which often are those of a day."""
    output = os.path.basename(str(said.get("output", ""))).removesuffix(f"-{said.get('night', '')}")
    return {
        "namespace": os.environ.get(NAMESPACE_VARIABLE) or NAMESPACE,
        "name": as_text(f"{command}.{output}" if output else command),
        "facets": {
            "jobType": _facet(
                "JobTypeJobFacet", processingType="BATCH", integration="DPBEAM", jobType="COMMAND"
            )
        },
    }


def _run_facets(result: Mapping[str, Any], ledger: Mapping[str, Any]) -> dict[str, Any]:
    """What ran, at what cost, and why it failed."""
    facets = {}
    if ledger:
        version = str(ledger["versions"].get("apache-beam", ""))
        facets["processing_engine"] = _facet(
            "ProcessingEngineRunFacet",
            version=version,
            name="Apache Beam",
            openlineageAdapterVersion=__version__,
        )
        facets["dpbeam_privacy"] = {
            "_producer": _PRODUCER,
            "_schemaURL": f"{_CORE}/RunFacet",
            **{name: ledger[name] for name in _OF_LEDGER},
            "private": result["private"],
            "ledger": os.path.basename(result["ledger"]),
            "release_id": result["release_id"],
        }
    if result["error"] is not None:
        facets["errorMessage"] = _facet(
            "ErrorMessageRunFacet", message=result["error"], programmingLanguage="PYTHON"
        )
    return facets


def _output(prefix: str, release: Mapping[str, Any], columns: list[tuple[str, str]]) -> dict[str, Any]:
    """The released files as one dataset; without numbers where the ledger has none."""
    dataset = _dataset(absolute(prefix) if is_local(prefix) else prefix)
    if columns:
        fields = [{"name": name, "type": kind} for name, kind in columns]
        dataset["facets"] = {"schema": _facet("SchemaDatasetFacet", fields=fields)}
    shards = release.get("outputs") or []
    rows = [shard["rows"] for shard in shards]
    if shards and None not in rows:
        numbers = _facet("OutputStatisticsOutputDatasetFacet", rowCount=sum(rows), fileCount=len(rows))
        dataset["outputFacets"] = {"outputStatistics": numbers}
    return dataset


def _dataset(path: str) -> dict[str, Any]:
    """A path by the naming of OpenLineage: the store, and the path within it."""
    table = table_format(path)
    if table is not None:
        name = path.partition(":")[2]
        return _dataset(name) if table == "delta" else {"namespace": table, "name": as_text(name)}
    if is_local(path):
        return {"namespace": "file", "name": as_text(path)}
    url = urlsplit(path)
    return {"namespace": f"{url.scheme}://{url.netloc}", "name": url.path.lstrip("/") or "/"}


def _released(path: str | None, outputs: list[str]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """The ledger, and the columns of Parquet files with their types; nothing where there is no release."""
    if path is None:
        return {}, []
    from dpbeam.io.released import opened

    with opened(path) as file:
        ledger = json.load(file)
    if not outputs or not outputs[0].endswith(".parquet"):
        return ledger, []
    import pyarrow.parquet as pq

    with opened(outputs[0]) as file:
        schema = pq.ParquetFile(file).schema_arrow
    return ledger, [(field.name, str(field.type)) for field in schema]


def _facet(kind: str, /, **values: Any) -> dict[str, Any]:
    url = f"{_SPEC}/facets/{_FACETS[kind]}/{kind}.json#/$defs/{kind}"
    return {"_producer": _PRODUCER, "_schemaURL": url, **values}
