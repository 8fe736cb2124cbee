"""`scripts/dp_recorder` still hands every noisy round to its tool, which is in no index: here the least of it."""

import functools
import re
import runpy
import sys
import warnings
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from dpbeam.engine import in_process
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import make_plan
from dpbeam.selectors.registry import selectors

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "dp_recorder"


class Auditor(AbstractContextManager):
    """Records calls of mechanisms, replays what they returned, and holds their inputs to the sensitivity."""

    active = None

    def __init__(self):
        self.log, self._replayed, self._next = [], False, 0

    def __enter__(self):
        Auditor.active = self

    def __exit__(self, *error):
        Auditor.active = None

    def set_replay(self):
        self._replayed = True

    def call(self, mechanism, metric, *, sums, sensitivity, noise):
        if not self._replayed:
            out = mechanism(sums, sensitivity, noise)
            self.log.append(SimpleNamespace(inputs_d={"sums": sums}, noise=noise, out=out, metric=metric))
            return out
        entry, self._next = self.log[self._next], self._next + 1
        assert entry.noise == noise
        entry.inputs_dp = {"sums": sums}
        return entry.out

    def validate_records(self):
        for number, entry in enumerate(self.log):
            distance = entry.metric(entry.inputs_d["sums"], entry.inputs_dp["sums"])
            assert distance <= 1 + 1e-9, f"call {number}: {distance:.4f}"


def audit_spec(*, kind, input_arg, sensitivity_arg, metric_fn):
    def decorated(mechanism):
        return functools.wraps(mechanism)(
            lambda **inputs: Auditor.active.call(mechanism, metric_fn, **inputs)
        )

    return decorated


def test_every_round_is_replayed_and_the_planted_fault_refuted(monkeypatch, capsys):
    tool = ModuleType("dp_recorder.auditing.audit_primitives")
    tool.Auditor, tool.audit_spec = Auditor, audit_spec
    for name in ("dp_recorder", "dp_recorder.auditing", tool.__name__):
        monkeypatch.setitem(sys.modules, name, tool)
    monkeypatch.setattr(sys, "argv", ["dp_recorder", "--seeds=1"])
    monkeypatch.setattr(in_process, "add_noise", in_process.add_noise)
    from dpbeam.selectors.gsu import program

    monkeypatch.setattr(program, "item_weights", program.item_weights)
    with pytest.raises(SystemExit) as end, warnings.catch_warnings():
        runpy.run_path(str(SCRIPT), run_name="__main__")
    assert end.value.code == 0
    *lines, refuted = capsys.readouterr().out.splitlines()
    replayed = [
        re.fullmatch(r"(.+): (\d+) rounds replayed, largest distance (\S+) of 1", line) for line in lines
    ]
    rounds = {line[1]: int(line[2]) for line in replayed}
    assert rounds == {name: len(plan.rounds) for name, plan in plans().items() if name in rounds}
    assert len(rounds) >= 10 and all(0.9 < float(line[3]) <= 1 for line in replayed)
    assert refuted == "weights of 1.3: refuted: call 1: 1.3000"


def plans():
    """Name of a variant -> a plan with as many rounds."""
    return {
        name: make_plan(SelectionConfig(1.0, 1e-5, method, max_items_per_user=10, **settings))
        for method, selector in selectors().items()
        for name, settings in selector.variants.items()
    }
