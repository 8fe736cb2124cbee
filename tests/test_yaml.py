"""The pipelines of docs/how-to/yaml.md, run by Beam YAML; what they release, tests/test_doors.py compares."""

import glob
import json
import re
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from apache_beam.yaml import main as beam_yaml

import dpbeam
from dpbeam.accounting.ledger import Ledger
from dpbeam.selectors.gsu import settings as gsu_settings

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
    """A folder with the files that the page reads."""
    folder = tmp_path_factory.mktemp("yaml")
    logs = [{"user_id": f"u{u}", "query": query} for u in range(500) for query in QUERIES[: 1 + u % 4]]
    agents = [{"agent": f"a{n}", "value": 0.25 + n % 3 / 4, "beds": 1, "nurses": n % 2} for n in range(500)]
    for name, held in (("logs.parquet", logs), ("agents.parquet", agents)):
        pq.write_table(pa.Table.from_pylist(held), folder / name)
    return folder


def test_the_page_has_every_kind():
    (provider,) = yaml.safe_load(PROVIDERS.read_text(encoding="utf-8"))
    named = provider["transforms"]
    assert sorted(named) == sorted(config_of(pipeline)["type"] for pipeline in PIPELINES)
    for name, place in named.items():
        assert place == f"dpbeam.{name}" and issubclass(getattr(dpbeam, name), beam.PTransform)


@pytest.mark.parametrize("pipeline", PIPELINES, ids=[config_of(pipeline)["type"] for pipeline in PIPELINES])
def test_of_the_page(pipeline, inputs, tmp_path, monkeypatch):
    monkeypatch.setattr(gsu_settings, "DEFAULT_ROUNDS", 2)
    steps = pipeline["pipeline"]["transforms"]
    read, step, write = (one["config"] for one in steps)
    output = write["path"]
    read["path"] = str(inputs / read["path"])
    for config, name in ((step, "ledger"), (write, "path")):
        if name in config:
            config[name] = str(tmp_path / config[name])
    file = tmp_path / "pipeline.yaml"
    file.write_text(yaml.safe_dump(pipeline))
    variables = json.dumps({"providers": str(PROVIDERS)})
    beam_yaml.run(
        [
            f"--yaml_pipeline_file={file}",
            f"--jinja_variables={variables}",
            "--runner=FnApiRunner",
            f"--temp_location={tmp_path}/temp",
        ]
    )
    [path] = glob.glob(f"{tmp_path}/{output}-*")
    assert pq.read_table(path).num_rows >= 2
    if "ledger" in step:
        assert Ledger.from_json(Path(step["ledger"]).read_text()).private
    assert not glob.glob(f"{tmp_path}/temp/*")
