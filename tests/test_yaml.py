"""The pipelines of docs/how-to/yaml.md, run by Beam YAML, give what the transforms give in Python."""

import glob
import json
import re
import subprocess
import sys
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import dpbeam
from dpbeam.accounting.ledger import Ledger
from tests.support.pipelines import kept, outcome

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/how-to/yaml.md").read_text(encoding="utf-8")
PIPELINES = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
PROVIDERS = ROOT / "dpbeam/yaml/providers.yaml"
QUERIES = ["weather", "news", "a third", "a fourth"]


def config_of(pipeline):
    """The step of dpbeam."""
    return pipeline["pipeline"]["transforms"][1]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A folder with the files that the page reads, and their rows."""
    folder = tmp_path_factory.mktemp("yaml")
    logs = [{"user_id": f"u{u}", "query": query} for u in range(500) for query in QUERIES[: 1 + u % 4]]
    agents = [{"agent": f"a{n}", "value": 0.25 + n % 3 / 4, "beds": 1, "nurses": n % 2} for n in range(500)]
    rows = {"logs.parquet": logs, "agents.parquet": agents}
    for name, held in rows.items():
        pq.write_table(pa.Table.from_pylist(held), folder / name)
    return folder, rows


def test_the_page_has_every_kind():
    (provider,) = yaml.safe_load(PROVIDERS.read_text(encoding="utf-8"))
    named = provider["transforms"]
    assert sorted(named) == sorted(config_of(pipeline)["type"] for pipeline in PIPELINES)
    for name, place in named.items():
        assert place == f"dpbeam.{name}" and issubclass(getattr(dpbeam, name), beam.PTransform)


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", PIPELINES, ids=[config_of(pipeline)["type"] for pipeline in PIPELINES])
def test_of_the_page(pipeline, inputs, tmp_path):
    folder, rows = inputs
    steps = pipeline["pipeline"]["transforms"]
    read, step, write = (one["config"] for one in steps)
    source, output = read["path"], write["path"]
    read["path"] = str(folder / source)
    for config, name in ((step, "ledger"), (write, "path")):
        if name in config:
            config[name] = str(tmp_path / config[name])
    arguments = {name: value for name, value in step.items() if name != "ledger"}
    step["insecure_test_key"] = "yaml"
    file = tmp_path / "pipeline.yaml"
    file.write_text(yaml.safe_dump(pipeline))
    command = [sys.executable, "-m", "apache_beam.yaml.main", f"--yaml_pipeline_file={file}"]
    variables = json.dumps({"providers": str(PROVIDERS)})
    subprocess.run(
        [
            *command,
            f"--jinja_variables={variables}",
            "--runner=FnApiRunner",
            f"--temp_location={tmp_path}/temp",
        ],
        check=True,
        timeout=600,
    )
    released = [
        row for path in glob.glob(f"{tmp_path}/{output}-*") for row in pq.read_table(path).to_pylist()
    ]

    transform = getattr(dpbeam, steps[1]["type"])(
        **arguments, insecure_test_key="yaml", run_folder=str(tmp_path)
    )
    elements = beam.Create([beam.Row(**row) for row in rows[source]])
    wanted = outcome(lambda p: kept(p | elements | transform | beam.Map(lambda row: row._asdict())))
    assert sorted(released, key=str) == sorted(wanted, key=str) != []
    if "ledger" in step:
        assert not Ledger.from_json(Path(step["ledger"]).read_text()).private
    assert not glob.glob(f"{tmp_path}/temp/*")
