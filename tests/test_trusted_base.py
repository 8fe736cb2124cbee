"""The trusted base of docs/architecture.md: it imports nothing else of dpbeam, and is as small as the pages say."""

import ast
import functools
import io
import re
import tokenize
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from dpbeam.accounting.accountant import OverspentError
from dpbeam.accounting.events import ComposedEvent, PureEvent
from dpbeam.accounting.noise import NoiseMismatchError
from dpbeam.counting.config import plan_count
from dpbeam.counting.family import CountConfig
from dpbeam.counts.gathered import public_domain
from dpbeam.hitting.config import plan_hitting_set
from dpbeam.hitting.family import HittingSetConfig
from dpbeam.hitting.program import HittingSetProgram
from dpbeam.packing.program import PackingProgram
from dpbeam.topk.config import plan_topk
from dpbeam.topk.family import TopKConfig
from dpbeam.topk.mechanisms import MECHANISMS
from dpbeam.topk.program import topk_program
from tests.support.markets import market
from tests.support.markets import plan as packing_plan
from tests.test_layers import ROOT, imports, modules

#: What any module may need.
AROUND = ("dpbeam.errors", "dpbeam.plugins", "dpbeam.version")
#: Where the number of lines stands.
STATED_IN = ("README.md", "docs/architecture.md", "docs/explanation/review.md")
_ITEMS = pa.array([b"a", b"b"], pa.large_binary())
_NO_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)


def base() -> dict[str, Path]:
    """The modules that the page lists: `package: all`, `package: all but a, b` or `package: a, b`."""
    page = (ROOT / "docs/architecture.md").read_text()
    section = page.partition("## The trusted base")[2].partition("\n## ")[0]
    known, chosen = modules(), {}
    for package, listed in re.findall(r"^    (dpbeam[.\w]*): (.*)$", section, re.MULTILINE):
        inside = {name for name in known if name == package or name.startswith(f"{package}.")}
        modules_named = re.findall(r"[\w.]+", listed.removeprefix("all").removeprefix(" but"))
        named = {f"{package}.{name}" for name in modules_named}
        assert named <= inside, named - inside
        chosen |= {name: known[name] for name in (inside - named if listed.startswith("all") else named)}
    return chosen


def lines_of_code(path: Path) -> int:
    """Without docstrings, comments and blank lines."""
    text = path.read_text(encoding="utf-8")
    prose: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
            and ast.get_docstring(node) is not None
        ):
            prose |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - prose)


def test_it_imports_nothing_else():
    trusted = base()
    for name, path in trusted.items():
        for imported in imports(path):
            if imported.split(".")[0] not in ("dpbeam", "apache_beam"):
                continue
            known = imported if imported in modules() else imported.rpartition(".")[0]
            assert known in trusted or known in AROUND, f"{name} imports {imported}"


def test_its_size_is_stated():
    hundreds = -(-sum(map(lines_of_code, base().values())) // 100) * 100
    assert hundreds <= 8_000
    for page in STATED_IN:
        assert f"{hundreds:,} lines of code" in (ROOT / page).read_text(), (page, hundreds)


def test_every_program_of_a_selector_is_in_it():
    """What blocks, shards and the hub do."""
    derived = re.compile(r"^class \w+\((\w+, )*(\w*Program|Forwarding|Extended|UserRounds)\b", re.MULTILINE)
    defining = {name for name, path in modules().items() if derived.search(path.read_text())}
    apart = re.compile(r"(dpbeam_lab|dpbeam\.(engine\.beam|series|testing))\b")
    outside = {name for name in defining - set(base()) if not apart.match(name)}
    assert not outside


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_choice_that_no_event_states_is_refused(mechanism):
    public = mechanism != "limited-domain"
    plan = plan_topk(TopKConfig(1.0, 1e-6, 10, mechanism=mechanism, public_domain=public))
    domain = public_domain(_ITEMS) if public else None
    topk_program(plan, domain)
    with pytest.raises(NoiseMismatchError):
        topk_program(replace(plan, event=ComposedEvent("basic", (PureEvent(0.01),))), domain)


def test_a_selection_or_counts_that_no_event_states_are_refused():
    plan = plan_topk(TopKConfig(1.0, 1e-6, 10, mechanism="pnf-peel", noisy_counts=True))
    topk_program(plan)
    for left_out in range(len(plan.event.parts)):
        parts = tuple(part for i, part in enumerate(plan.event.parts) if i != left_out)
        with pytest.raises(NoiseMismatchError, match="do not state"):
            topk_program(replace(plan, event=replace(plan.event, parts=parts)))


@pytest.mark.parametrize("mechanism", [*MECHANISMS, "hitting set", "count", "market"])
def test_a_plan_above_its_budget_is_refused(mechanism):
    if mechanism == "market":
        made = packing_plan(market([100.0, 80.0], 50))
        run = PackingProgram
    elif mechanism == "count":
        made, run = plan_count(CountConfig(1.0, 1e-6)), lambda plan: plan.program(public_domain(_ITEMS))
    elif mechanism == "hitting set":
        made, run = plan_hitting_set(HittingSetConfig(1.0, 1e-6, 10)), HittingSetProgram
    else:
        public = mechanism != "limited-domain"
        made = plan_topk(TopKConfig(1.0, 1e-6, 10, mechanism=mechanism, public_domain=public))
        run = functools.partial(topk_program, domain=public_domain(_ITEMS) if public else None)
    run(made)
    with pytest.raises(OverspentError, match=r"costs (epsilon|delta) .*, the budget is"):
        run(replace(made, config=replace(made.config, epsilon=0.9, delta=1e-9)))


def test_choices_of_a_hitting_set_that_no_event_states_are_refused():
    plan = plan_hitting_set(HittingSetConfig(1.0, 1e-6, 10))
    HittingSetProgram(plan)
    for changed in ({"epsilon0": plan.epsilon0 * 1.01}, {"rate": plan.rate / 2}):
        hostile = replace(plan)
        for name, value in changed.items():
            object.__setattr__(hostile, name, value)
        with pytest.raises(NoiseMismatchError, match="the plan makes"):
            HittingSetProgram(hostile)


def test_noise_for_less_than_the_demand_of_an_agent_is_refused():
    plan = packing_plan(market([100.0, 80.0], 50))
    PackingProgram(plan)
    with pytest.raises(NoiseMismatchError, match="does not protect"):
        replace(plan, noise=replace(plan.noise, sensitivity=plan.noise.sensitivity * 0.99))
