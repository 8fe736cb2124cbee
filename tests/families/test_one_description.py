"""A setting is added to a kind of release in one line, and is then behind every door."""

import dataclasses
import inspect
import json
from dataclasses import dataclass

import pytest

import dpbeam
from dpbeam.accounting.ledger import Ledger
from dpbeam.cli import hitting_set, main
from dpbeam.cli.plan import planned
from dpbeam.errors import InputError
from dpbeam.families import registry
from dpbeam.hitting.family import HittingSetConfig
from dpbeam.jobs.identity import settings_digest
from dpbeam.jobs.options import SettingFlags
from dpbeam.packing.family import PackingConfig
from dpbeam.review.families import calibrated_anew
from dpbeam.selection.config import SelectionConfig
from dpbeam.selectors.base import setting
from dpbeam.topk.family import TopKConfig
from tests.support.instances import popular_table

RUN = {"input_parameters": None, "fixed_key": False, "privacy_unit": "one user"}
FLAGS = ["--epsilon=1", "--delta=1e-5", "--k=3"]


@dataclass(frozen=True)
class Shaded(HittingSetConfig):
    """A hitting set with one more setting."""

    shade: int = setting(3, "how dark the answer is", low=0, high=9, metavar="N")


@pytest.fixture
def shaded(monkeypatch):
    """The kind `hitting-set` is this one."""
    entries = [
        one.replace("dpbeam.hitting.family:HittingSetConfig", f"{__name__}:Shaded")
        for one in registry._FAMILIES
    ]
    monkeypatch.setattr(registry, "_FAMILIES", tuple(entries))
    monkeypatch.setattr(hitting_set.ChoiceOptions, "release", SettingFlags(Shaded))
    monkeypatch.setattr(hitting_set.HittingSetCommand, "family", Shaded)
    registry.families.cache_clear()
    planned.cache_clear()
    yield
    registry.families.cache_clear()
    planned.cache_clear()


@pytest.mark.usefixtures("shaded")
class TestOneLine:
    def test_flag_and_help(self, capsys):
        assert main(["hitting-set", "--help_all"]) == 0
        assert "--shade N" in (text := capsys.readouterr().out) and "how dark the answer is" in text
        assert main(["completion", "bash"]) == 0
        assert "--shade" in capsys.readouterr().out

    @pytest.mark.parametrize(
        "command", [["hitting-set", "--input=x.csv", "--output=o"], ["plan", "--family=hitting-set"]]
    )
    def test_its_range_is_checked(self, command, capsys):
        assert main([*command, *FLAGS, "--shade=10"]) == 2
        assert "--shade must be an integer from 0 to 9, got 10" in capsys.readouterr().err

    def test_plan(self, capsys):
        assert main(["plan", "--family=hitting-set", *FLAGS, "--shade=5", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["shade"] == 5
        assert main(["plan", "--family=count", *FLAGS[:2], "--shade=5"]) == 2
        assert "--shade is of hitting-set" in capsys.readouterr().err

    def test_command_ledger_and_verify(self, tmp_path, capsys):
        import pyarrow.parquet as pq

        pq.write_table(popular_table(300), tmp_path / "in.parquet")
        where = [f"--input={tmp_path}/in.parquet", f"--output={tmp_path}/out", f"--budget={tmp_path}/b.db"]
        assert main(["budget", "create", where[2], "--dataset=d", "--epsilon=5", "--delta=1e-3"]) == 0
        job = ["hitting-set", *FLAGS, *where, "--dataset=d", "--release_id=r", "--shade=5"]
        assert main([*job, "--dry_run"]) == 0
        assert main(job) == 0
        path = tmp_path / "out.ledger.json"
        ledger = Ledger.from_json(path.read_text())
        assert ledger.parameters["shade"] == 5
        assert main(["verify", str(path)]) == 0
        without = {name: value for name, value in ledger.parameters.items() if name != "shade"}
        assert calibrated_anew(ledger).same
        assert not calibrated_anew(dataclasses.replace(ledger, parameters=without)).same
        assert Shaded.of_ledger(ledger).shade == 5

    def test_another_value_is_another_run(self):
        digests = {settings_digest("hitting-set", {"k": 3, "shade": shade}, "out") for shade in (4, 5)}
        assert len(digests) == 2

    def test_arguments(self):
        assert Shaded.asked({"epsilon": 1, "delta": 1e-5, "k": 3, "shade": 5}).shade == 5
        with pytest.raises(InputError, match=r"^--shade must be an integer from 0 to 9, got 10$"):
            Shaded.asked({"epsilon": 1, "delta": 1e-5, "k": 3, "shade": 10})


@pytest.mark.parametrize(
    "function, kind",
    [
        (dpbeam.hitting_set, HittingSetConfig),
        (dpbeam.top_k, TopKConfig),
        (dpbeam.pack, PackingConfig),
        (dpbeam.select, SelectionConfig),
        (SelectionConfig, SelectionConfig),
    ],
)
def test_a_signature_has_every_setting(function, kind):
    """Written out for editors and mypy: the names, types and defaults are those of the fields."""
    parameters = inspect.signature(function).parameters
    fields = {field.name: field for field in dataclasses.fields(kind)}
    assert kind.described()
    for name in kind.described():
        own, default = parameters[name], fields[name].default
        assert own.annotation in (fields[name].type, f"{fields[name].type} | None")
        expected = inspect.Parameter.empty if default is dataclasses.MISSING else default
        assert own.default == expected or (own.default is None and own.annotation.endswith(" | None"))
