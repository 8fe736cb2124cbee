"""A setting is added to a kind of release in one line, and is then behind every door."""

import dataclasses
import inspect
import json
import sys
from dataclasses import dataclass

import pytest

import dpbeam
from dpbeam.accounting.ledger import Ledger
from dpbeam.cli import main
from dpbeam.cli.flags import FlagParser
from dpbeam.cli.plan import planned
from dpbeam.counting.family import CountConfig
from dpbeam.errors import InputError
from dpbeam.families import registry
from dpbeam.hitting.family import HittingSetConfig
from dpbeam.jobs.identity import settings_digest
from dpbeam.jobs.options import SettingFlags
from dpbeam.packing.family import PackingConfig
from dpbeam.review.families import calibrated_anew
from dpbeam.selection.config import SelectionConfig
from dpbeam.selectors.base import setting
from dpbeam.series.family import SeriesConfig
from dpbeam.testing.kinds import BUDGET, as_flags
from dpbeam.topk.family import TopKConfig
from tests.families.contracts import CONTRACTS

#: Kind -> how it is run.
TRIED = {contract.kind: contract for contract in CONTRACTS.values()}


def with_shade(kind):
    """The kind with one more setting."""

    def init(self, *arguments, shade=3, **more):  # as of `SelectionConfig`, which is written out for editors
        object.__setattr__(self, "shade", shade)
        SelectionConfig.__init__(self, *arguments, **more)

    members = {
        "__module__": __name__,
        "__annotations__": {"shade": "int"},
        "shade": setting(3, "how dark the answer is", low=0, high=9, metavar="N"),
    }
    if kind is SelectionConfig:
        members["__init__"] = init
    made = type(f"Shaded{kind.__name__}", (kind,), members)
    return dataclass(frozen=True, init="__init__" not in members)(made)


SHADED = {kind: with_shade(kind) for kind in TRIED}
globals().update({one.__name__: one for one in SHADED.values()})  # where pickles of their plans find them


@dataclass(frozen=True)
class Shaded:
    """A kind with one more setting: `kind`, its name, flags that plan it, and those that release it."""

    kind: type
    name: str
    plan: list[str]
    run: list[str]


@pytest.fixture(params=TRIED, ids=lambda kind: kind.name)
def shaded(request, monkeypatch, tmp_path):
    """A kind with one more setting stands wherever the kind did."""
    kind, contract = request.param, TRIED[request.param]
    more, flags = SHADED[kind], [*as_flags({**BUDGET, **contract.settings()[-1]})]
    planned()  # imports every command
    for module in [module for name, module in sys.modules.items() if name.startswith("dpbeam.")]:
        for name, value in list(vars(module).items()):
            if value is kind:
                monkeypatch.setattr(module, name, more)
            elif isinstance(value, type) and value.__module__ == module.__name__:
                if vars(value).get("family") is kind:
                    monkeypatch.setattr(value, "family", more)
                if isinstance(own := vars(value).get("release"), SettingFlags) and own.kind is kind:
                    monkeypatch.setattr(value, "release", own._replace(kind=more))
    caches = (registry.families, planned)
    for cache in caches:
        cache.cache_clear()
    monkeypatch.chdir(tmp_path)
    reads, verb, market = contract.command_line(str(tmp_path)), [], []
    if kind is SeriesConfig:
        reads, verb = ["--folder=private"], ["open"]
    if kind is PackingConfig:
        market = [reads[1], "--num_agents=100"]
    plan = ["plan", f"--family={kind.name}", *flags, *market]
    yield Shaded(more, kind.name, plan, [kind.name, *verb, *flags, *reads, "--output=out"])
    for cache in caches:
        cache.cache_clear()


class TestOneLine:
    def test_flag_and_help(self, shaded, capsys):
        assert main([shaded.name, "--help_all"]) == 0
        assert "--shade N" in (text := capsys.readouterr().out) and "how dark the answer is" in text
        assert main(["completion", "bash"]) == 0
        assert "--shade" in capsys.readouterr().out

    def test_its_range_is_checked(self, shaded, capsys):
        for command in (shaded.run, shaded.plan):
            assert main([*command, "--shade=10"]) == 2
            assert "--shade must be an integer from 0 to 9, got 10" in capsys.readouterr().err

    def test_plan(self, shaded, capsys):
        assert main([*shaded.plan, "--shade=5", "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert report.get("parameters", report)["shade"] == 5

    def test_another_kind_has_it_not(self, shaded, capsys):
        other = ["--family=top-k", "--k=3"] if shaded.name == "count" else ["--family=count"]
        assert main(["plan", *other, *as_flags(BUDGET), "--shade=5"]) == 2
        assert "--shade is of" in (said := capsys.readouterr().err) or "does not apply" in said

    def test_command_ledger_and_verify(self, shaded, tmp_path, capsys):
        account = "--budget=b.db"
        assert main(["budget", "create", account, "--dataset=d", "--epsilon=5", "--delta=0.1"]) == 0
        job = [*shaded.run, account, "--dataset=d", "--release_id=r", "--shade=5"]
        assert main([*job, "--dry_run"]) == 0
        assert main(job) == 0, capsys.readouterr().err
        ledger = Ledger.from_json((tmp_path / "out.ledger.json").read_text())
        assert ledger.parameters["shade"] == 5
        assert main(["verify", "out.ledger.json"]) == 0
        without = {name: value for name, value in ledger.parameters.items() if name != "shade"}
        assert calibrated_anew(ledger).same
        # Ledgers of early selections state fewer settings, which had their defaults.
        same = shaded.name == "select"
        assert calibrated_anew(dataclasses.replace(ledger, parameters=without)).same == same
        assert shaded.kind.of_ledger(ledger).shade == 5
        assert main([*job[:-1], "--shade=4"]) == 2
        assert "--release_id" in capsys.readouterr().err  # it stands for another run

    def test_another_value_is_another_run(self, shaded):
        parser: FlagParser = planned()[shaded.name].make_parser()
        options = (parser.parse([*shaded.run[1:], f"--shade={shade}"])[0] for shade in (4, 5, 5))
        assert len({settings_digest(shaded.name, one, "out") for one in options}) == 2

    def test_arguments(self, shaded):
        values = {"epsilon": 1, "delta": 1e-5, "k": 3, "nights": 3}
        assert shaded.kind.asked({**values, "shade": 5}).shade == 5
        with pytest.raises(InputError, match=r"^--shade must be an integer from 0 to 9, got 10$"):
            shaded.kind.asked({**values, "shade": 10})


@pytest.mark.parametrize(
    "function, kind",
    [
        (dpbeam.count, CountConfig),
        (dpbeam.hitting_set, HittingSetConfig),
        (dpbeam.top_k, TopKConfig),
        (dpbeam.pack, PackingConfig),
        (dpbeam.select, SelectionConfig),
        (dpbeam.Series, SeriesConfig),
        (SelectionConfig, SelectionConfig),
        (dpbeam.CountItems, CountConfig),
        (dpbeam.HittingSet, HittingSetConfig),
        (dpbeam.TopKItems, TopKConfig),
        (dpbeam.Packing, PackingConfig),
        (dpbeam.SelectPartitions, SelectionConfig),
    ],
)
def test_a_signature_has_every_setting(function, kind):
    """Written out for editors and mypy: the names, types and defaults are those of the fields."""
    parameters = inspect.signature(function).parameters
    fields = {field.name: field for field in dataclasses.fields(kind)}
    transform = "config" in parameters  # in place of all others, which may then be None
    for name in ("epsilon", "delta", *kind.described()):
        own, default = parameters[name], fields[name].default
        assert own.annotation in (fields[name].type, f"{fields[name].type} | None") or (
            f"{own.annotation} | None" == fields[name].type
        )
        expected = inspect.Parameter.empty if default is dataclasses.MISSING else default
        if not (own.default is None and own.annotation.endswith(" | None")):
            assert own.default == expected and (not transform or default is not dataclasses.MISSING)
