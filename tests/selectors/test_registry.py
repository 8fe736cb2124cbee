"""The registry is the only list of methods, and what it holds agrees with itself."""

import copy
import importlib
import inspect
import re
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

from dpbeam.errors import InputError
from dpbeam.review.page import known_weaknesses
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import SelectionPlan, make_plan
from dpbeam.selectors import registry
from dpbeam.selectors.base import Selector, Settings
from dpbeam.selectors.registry import advised, all_settings, defaults, find, register, selectors, variants
from tests.selectors.case import cases

ROOT = Path(__file__).resolve().parents[2]
SELECTORS = Path(registry.__file__).parent  # installed, or beside the tests
# A place may name one method, or two to compare them; three names within a few lines are a list.
_WITHIN = 300
_OWN = (
    *(Path("dpbeam/selectors"), Path("tests/selectors")),
    *(Path("lab/dpbeam_lab/audit/methods"), Path("lab/tests/selectors"), Path("lab/experiments")),
    Path("lab/scripts/bench_auto"),  # an experiment too
)
_EXPECTED = (
    Path("tests/selection"),
    Path("tests/counts"),
    Path("tests/review"),
    Path("tests/simulation"),
    Path("lab/tests/audit/test_floor.py"),
    Path("lab/tests/evaluation/test_methods.py"),
    Path("lab/tests/evaluation/test_tuning.py"),
)  # settings and numbers expected of single methods: no new one need be added


def named_together(text: str, names: list[str]) -> set[str]:
    """The largest set of method names that stand as strings within `_WITHIN` characters."""
    pattern = re.compile(rf"""["'](?:--method=|--selector=)?({"|".join(map(re.escape, names))})["']""")
    mentions = [(m.start(), m.group(1)) for m in pattern.finditer(text)]
    sets = ({name for at, name in mentions if start <= at < start + _WITHIN} for start, _ in mentions)
    return max(sets, key=len, default=set())


def test_who_is_not_peer_reviewed_is_a_known_weakness():
    [line] = [line for line in known_weaknesses() if line.startswith("Not peer-reviewed")]
    for name, selector in selectors().items():
        assert (f"`{name}`" in line) != selector.peer_reviewed, name


def test_no_list_of_methods_elsewhere():
    """Product, lab, scripts and tests walk the registry; only a selector's own folder, what the lab plants in it, and
    experiments name its methods."""
    names = list(selectors())
    offenders = {}
    for folder in ("dpbeam", "lab", "pipelines", "scripts", "tests"):
        for path in sorted((ROOT / folder).rglob("*")):
            own = any(path.relative_to(ROOT).is_relative_to(place) for place in (*_OWN, *_EXPECTED))
            if own or not path.is_file() or path.suffix not in (".py", ""):
                continue
            together = named_together(path.read_text(encoding="utf-8", errors="ignore"), names)
            if len(together) > 2:
                offenders[str(path.relative_to(ROOT))] = together
    assert not offenders


def test_a_list_would_be_seen():
    names = list(selectors())
    assert len(named_together(f"METHODS = {names!r}", names)) == len(names)
    assert named_together("method == 'gsu' or method == 'mad'", names) == {"gsu", "mad"}


@pytest.mark.parametrize("name", selectors())
def test_a_selector_says_all_that_is_asked(name):
    selector = selectors()[name]
    assert find(name) is selector
    assert all(find(alias) is selector for alias in selector.aliases)
    assert issubclass(selector.settings_type, Settings)
    assert {f.name for f in fields(selector.settings_type)} == set(selector.settings_type.described())
    assert set(cases()[name].tight) <= set(selector.variants)


def test_variants_have_names_of_their_own():
    assert sum(len(s.variants) for s in selectors().values()) == len(variants())
    assert [v["method"] for v in defaults().values()] == list(selectors())


def test_settings_of_one_name_are_of_one_kind():
    """A flag serves all methods that have it."""
    for name, by_method in all_settings().items():
        assert len({described.kind for described in by_method.values()}) == 1, name


def test_unknown_names_are_refused():
    with pytest.raises(InputError, match=r"^--method must be one of basic, .*, wgm, got 'best'$"):
        find("best")


def test_names_are_taken_once(monkeypatch):
    monkeypatch.setattr(registry, "_added", {})
    basic = find("basic")

    class Other(type(basic)):
        name, aliases, variants = "other", (), {"other": {}}

    other = register(Other())
    assert find("other") is other
    with pytest.raises(ValueError, match="a selector is named 'other' already"):
        register(Other())

    class Namesake(Other):
        name, aliases = "another", ("wgm",)

    with pytest.raises(ValueError, match="a selector is named 'wgm' already"):
        register(Namesake())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"variants": {}}, "selector Other has no variants"),
        ({"name": ""}, "selector Other has no name"),
        ({"summary": None}, "selector Other has no summary"),
        ({"settings_type": dict}, "settings_type of selector Other is no Settings"),
        (
            {"variants": {"other": {"rounds": 4}}},
            "variant 'other' of selector Other sets rounds, which it does not have",
        ),
    ],
)
def test_a_selector_that_does_not_say_enough_is_not_registered(changed, message, monkeypatch):
    monkeypatch.setattr(registry, "_added", {})
    other = type("Other", (type(find("basic")),), {"name": "other", "aliases": (), **changed})
    with pytest.raises(ValueError, match=f"^{message}$"):
        register(other())
    assert not registry._added


def test_a_selector_without_variants_is_not_registered(monkeypatch):
    """Benchmarks, audit and tests walk them: it would be tested nowhere."""
    monkeypatch.setattr(registry, "_added", {})
    basic = find("basic")

    class Bare(Selector):
        name, summary, plan, weight = "bare", "says little", basic.plan, basic.weight

    with pytest.raises(ValueError, match="selector Bare has no variants"):
        register(Bare())


def orphans(folder: Path) -> set[str]:
    """Selectors that a folder's packages define and no line of the registry names."""
    listed = set(registry._BUILT_IN)
    missing = set()
    for path in folder.glob("*/__init__.py"):
        module = importlib.import_module(f"dpbeam.selectors.{path.parent.name}")
        missing |= {
            f"{module.__name__}:{name}"
            for name, value in vars(module).items()
            if isinstance(value, type)
            and issubclass(value, Selector)
            and value.__module__ == module.__name__
            and not inspect.isabstract(value)
        }
    return {entry for entry in missing if not entry.rpartition(":")[2].startswith("_")} - listed


def test_every_folder_has_its_line():
    """A selector whose line is forgotten would be tested nowhere and offered nowhere."""
    assert orphans(SELECTORS) == set()


def test_a_forgotten_line_is_seen(monkeypatch):
    *kept, forgotten = registry._BUILT_IN
    monkeypatch.setattr(registry, "_BUILT_IN", tuple(kept))
    assert orphans(SELECTORS) == {forgotten}


@pytest.mark.parametrize("name", ["trips", "norm", "cap", "weight_grid", "reply_columns"])
def test_a_program_that_does_not_say_enough_is_noticed_by_the_plan(name):
    made = make_plan(SelectionConfig(1.0, 1e-5, "basic"))
    program = copy.copy(made.program)
    delattr(program, name)
    with pytest.raises(ValueError, match=f"^UniformProgram does not say its {name}: None$"):
        SelectionPlan(made.config, replace(made.calibration, program=program))


@pytest.mark.parametrize(("name", "value"), [("cap", 0), ("trips", 0), ("weight_grid", 0.0)])
def test_nothing_is_kept_of_nobody(name, value):
    made = make_plan(SelectionConfig(1.0, 1e-5, "basic"))
    program = copy.copy(made.program)
    setattr(program, name, value)
    with pytest.raises(ValueError, match="of UniformProgram must be positive"):
        SelectionPlan(made.config, replace(made.calibration, program=program))


def test_the_registry_is_cheap_to_import():
    """Wrong flags are refused before anything that computes is loaded."""
    code = (
        "import sys; from dpbeam.selectors import registry; registry.all_settings(); "
        "print([m for m in ('numpy', 'scipy', 'pyarrow', 'apache_beam') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("items_per_user", [1, 1.5, 3.0, 3.01, 5, 20, 100, 101, 152, 1e6])
def test_exactly_one_selector_is_recommended_and_its_flags_are_its_own(items_per_user):
    advising = {name: s.advice(items_per_user) for name, s in selectors().items() if s.advice(items_per_user)}
    (name,) = advising
    selector, advice = advised(items_per_user)
    assert selector.name == name
    assert name == ("vote" if items_per_user <= 3 else "gsu" if items_per_user <= 100 else "bits")
    assert advice.why and "\n" not in advice.why
    config = SelectionConfig(1.0, 1e-5, name, **advice.settings).resolve()
    assert config.max_items_per_user == {5: 50, 20: 200, 152: 400}.get(
        items_per_user, config.max_items_per_user
    )


@pytest.mark.parametrize("name", selectors())
def test_no_d0_that_is_tried_or_recommended_is_far_from_the_default(name):
    selector = selectors()[name]
    for items in selector.tunable.get("max_items_per_user", ()):
        for settings in selector.variants.values():
            assert SelectionConfig(1.0, 1e-5, name, max_items_per_user=items, **settings).doubts() == []
    for items in (1, 3, 3.1, 20, 100, 101, 1e6):
        if advice := selector.advice(items):
            assert SelectionConfig(1.0, 1e-5, name, **advice.settings).doubts() == []
    default = SelectionConfig(1.0, 1e-5, name).resolve().max_items_per_user
    assert SelectionConfig(1.0, 1e-5, name, max_items_per_user=41 * default).doubts()


def test_the_help_of_d0_names_what_the_plans_have():
    text = " ".join(SelectionConfig.described()["max_items_per_user"].help.split())
    for name, selector in selectors().items():
        [part] = (part for part in re.split("[(;)]", text) if re.search(rf"of .*\b{name}\b(?!-)", part))
        plans = [
            SelectionConfig(1.0, 1e-5, name, **settings).resolve() for settings in selector.variants.values()
        ]
        assert set(map(int, re.findall(r"\d+(?= of| or)", part))) == {
            plan.max_items_per_user for plan in plans
        }


#: Items per user, rare ones of a holder, and vote over gsu16 (lab/docs/reference/results.md).
MEASURED = [
    (1.22, 1.35, 1.53),
    (1.47, 2.59, 1.53),
    (1.96, 2.21, 1.28),
    (2.62, 3.24, 1.16),
    (3.00, 1.88, 1.31),
    (4.72, 2.48, 1.15),
    (5.00, 2.50, 1.12),
    (8.13, 3.35, 0.94),
    (9.99, 3.67, 0.81),
    (9.07, 3.99, 0.76),
    (10.39, 140, 0.69),
    (32.9, 36.97, 0.51),
    (20.52, 5448, 0.82),
]


@pytest.mark.parametrize(("items", "rare", "ratio"), MEASURED)
def test_who_knows_how_many_items_are_rare_is_told_what_was_measured(items, rare, ratio):
    selector, advice = advised(items, rare)
    assert selector.name == ("vote" if ratio > 1 else "gsu")
    assert ("unsure" in advice.why) == (2.6 < rare < 6.9)
    by_mean, doubtful = advised(items)
    assert by_mean.name == selector.name or "unsure" in doubtful.why  # a mean alone is wrong on short texts


@pytest.mark.parametrize("rare", [-0.1, 0.9, float("nan")])
def test_who_holds_a_rare_item_holds_one(rare):
    with pytest.raises(InputError, match="--rare_items_of_holder must be a number from 1"):
        advised(10, rare)


@pytest.mark.parametrize("value", [0.5, float("nan"), -1])
def test_an_average_below_one_item_is_refused(value):
    with pytest.raises(InputError, match="--items_per_user must be a number from 1"):
        advised(value)
