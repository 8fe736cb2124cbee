"""The audit through the command: every selector shows its released items and nothing else; planted faults are seen."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from dpbeam.cli import main
from dpbeam.cli.select import SelectCommand
from dpbeam.engine.beam.store import RunFolder
from dpbeam.errors import InputError
from dpbeam.io.output import OutputTarget
from dpbeam.jobs import files
from dpbeam.jobs.console import tell
from dpbeam.randomness import RunKey
from dpbeam.selection import plan as plans
from dpbeam_lab.audit.end_to_end import (
    Command,
    audit_command,
    markdown,
    repeated_excess,
    rows_of,
    telling_cases,
)
from dpbeam_lab.audit.methods import study
from dpbeam_lab.audit.neighbours import Neighbours, all_novel

SETTINGS = {"epsilon": 1.0, "delta": 0.05, "max_items_per_user": 8}
ALPHA = 1e-6  # probability that one audit refutes a correct program


def audited(tmp_path, method="basic", *, settings=SETTINGS, **options):
    return audit_command(
        main, method, str(tmp_path), settings=settings, alpha=ALPHA, **{"keys": 2, "copies": 100, **options}
    )


def test_a_run_shows_its_released_items_alone(tmp_path):
    """False alarm 1e-6."""
    result = audited(tmp_path, "gsu")
    assert result.passed, (result.leaks, markdown([("gsu", result)]))
    assert result.compared >= 2
    assert {f.kind for f in result.findings} == {"released set", "repetition"}
    assert result.worst.estimate > 0.2 * SETTINGS["delta"], "the inputs hardly differ"


def test_rounds_of_the_engine_show_no_more(tmp_path):
    """Blocks and shards as of large inputs; without statistics, for every job is slow."""
    result = audited(tmp_path, "mad2r", more=["--num_shards=3"], statistics=False)
    assert result.passed, result.leaks


def size_of(job) -> int:
    return job.reading[1].bytes


def wrapped(monkeypatch, owner, name, make):
    """Replace owner.name by make(original)."""
    monkeypatch.setattr(owner, name, make(getattr(owner, name)))


def shards_by_input_size(monkeypatch):
    def make(execute):
        def faulty(self, plan, job, listed, ledger):
            job.options.said["num_output_shards"] = 1 + size_of(job) // 5_000
            return execute(self, plan, job, listed, ledger)

        return faulty

    wrapped(monkeypatch, SelectCommand, "execute", make)


def ledger_with_input_size(monkeypatch):
    def make(ledger):
        def faulty(self, plan, job, listed):
            right = ledger(self, plan, job, listed)
            return replace(right, parameters={**right.parameters, "bytes": size_of(job)})

        return faulty

    wrapped(monkeypatch, SelectCommand, "ledger", make)


def input_size_in_a_file_name(monkeypatch):
    def make(execute):
        def faulty(self, plan, job, listed, ledger):
            code = execute(self, plan, job, listed, ledger)
            Path(f"{job.target.prefix}-of-{size_of(job)}-bytes").touch()
            return code

        return faulty

    wrapped(monkeypatch, SelectCommand, "execute", make)


def input_size_on_the_terminal(monkeypatch):
    def make(report):
        def faulty(self, plan, job, paths, released):
            report(self, plan, job, paths, released)
            tell(f"{size_of(job)} bytes were read")

        return faulty

    wrapped(monkeypatch, SelectCommand, "report", make)


def failure_of_large_inputs(monkeypatch):
    def make(execute):
        def faulty(self, plan, job, listed, ledger):
            if size_of(job) > 5_000:
                raise InputError("--input: too large")
            return execute(self, plan, job, listed, ledger)

        return faulty

    wrapped(monkeypatch, SelectCommand, "execute", make)


def order_of_arrival(monkeypatch):
    """Items leave in the order of their fingerprints, which is the key's."""
    wrapped(
        monkeypatch, pc, "array_sort_indices", lambda _: lambda items: pc.cast(np.arange(len(items)), "int64")
    )


def folder_that_stays(monkeypatch):
    monkeypatch.setattr(RunFolder, "remove", lambda self: None)


def permissions_by_input_size(monkeypatch):
    def make(commit):
        def faulty(self, ledger_json):
            paths = commit(self, ledger_json)
            if os.path.getsize(self._inputs[0]) > 5_000:
                os.chmod(paths[0], 0o600)
            return paths

        return faulty

    wrapped(monkeypatch, OutputTarget, "commit", make)


#: What each shows; those that show different things are planted together.
SIDE_CHANNELS = [
    {
        ledger_with_input_size: "ledger.json differs",
        input_size_in_a_file_name: "names of files differs",
        input_size_on_the_terminal: "stdout differs",
        order_of_arrival: ".parquet differs",
        folder_that_stays: "files stay behind",
    },
    {shards_by_input_size: "names of files differs"},
    {failure_of_large_inputs: "exit code 2"},
    {permissions_by_input_size: ".parquet differs"},
]


@pytest.mark.parametrize("faults", SIDE_CHANNELS)
def test_a_planted_side_channel_is_seen(faults, tmp_path, monkeypatch):
    for fault in faults:
        fault(monkeypatch)
    result = audited(tmp_path, statistics=False, cases=telling_cases()[1:])
    assert not result.passed
    for shows in faults.values():
        assert any(shows in leak for leak in result.leaks), result.leaks


def test_noise_that_does_not_depend_on_the_key_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "run_key", lambda options: RunKey.insecure_fixed("always"))
    result = audited(tmp_path, keys=3, copies=500, cases=())
    assert {f.kind for f in result.findings if f.violated} == {"repetition"}
    assert not result.leaks


def test_noise_that_depends_on_the_order_of_users_is_seen(tmp_path, monkeypatch):
    """The same key with the users in another order."""

    def make(run_key):
        def faulty(options):
            with open(options.input[0]) as source:
                source.readline()
                return RunKey.insecure_fixed(options.insecure_test_key + source.readline())

        return faulty

    wrapped(monkeypatch, files, "run_key", make)
    result = audited(tmp_path, copies=50, cases=())
    assert result.leaks == ("the same rows in another order change what is shown",)


def test_a_threshold_for_one_novel_item_is_seen(tmp_path, monkeypatch):
    """In released sets, as anybody sees them."""
    fault = next(f for f in study("basic").faults if "for one novel item" in f.name)

    def make(make_plan):
        def faulty(config):
            plan = make_plan(config)
            object.__setattr__(plan.calibration, "program", fault.build(plan.calibration, all_novel(64)))
            plan.__dict__.pop("program", None)  # made from the calibration's, when asked for
            return plan

        return faulty

    wrapped(monkeypatch, plans, "make_plan", make)
    settings = {**SETTINGS, "max_items_per_user": 64}
    result = audited(tmp_path, copies=400, cases=(), settings=settings)
    worst = max(result.findings, key=lambda f: f.lower)
    assert worst.violated and worst.kind == "released set" and worst.case == "all novel, 64 items"
    assert not result.leaks


def test_what_a_run_shows(tmp_path):
    """Every file with its mode and bytes, both streams, and nothing of the paths' own."""
    popular = Neighbours("popular", ((0, 1),) * 60, (0,))
    command = Command(main, str(tmp_path), ["--epsilon=1", "--delta=0.05", "--method=basic"])
    shown = command.run(rows_of([popular], 1, with_newcomer=False), "00")
    again = command.run(rows_of([popular], 1, with_newcomer=True), "00")
    assert shown == again and command.runs == 2
    assert shown.released == {"i0.0", "i0.1"} and shown.left == ()
    names = ["out/items-00000-of-00001.parquet", "out/items.ledger.json"]
    assert shown.rest["names of files"] == names
    mode, ledger = shown.rest["file out/items.ledger.json"]
    assert mode == os.lstat(tmp_path / names[1]).st_mode
    assert json.loads(ledger)["method"] == "basic"
    assert shown.rest["stdout"].startswith("2 items released") and "elapsed\n" in shown.rest["stdout"]
    assert "NOT PRIVATE" in shown.rest["stderr"]


def test_repeated_excess_by_hand():
    """Two of four copies differ under the first key; under the other two, P repeats all and Q none."""
    first = np.ones((3, 4, 1), bool)
    second = np.zeros((3, 4, 1), bool)
    second[:, 2:] = True
    estimate, lower, trials = repeated_excess(first, second, 1.0, 0.02)
    assert (estimate, trials) == (1.0, 4)
    assert lower == max(0.0, 0.01**0.25 - np.e * (1 - 0.01**0.25))
    assert repeated_excess(first, first, 1.0, 0.02) == (0.0, 0.0, 0)


def test_independent_noise_has_no_repeated_excess():
    """At e^0 times the true excess of 0.2, plus five standard errors (false alarm below 1e-5)."""
    generator = np.random.default_rng(5)
    first, second = generator.random((5, 5_000, 1)) < 0.6, generator.random((5, 5_000, 1)) < 0.4
    estimate, lower, trials = repeated_excess(first, second, 0.0, 1e-6)
    # Where P released and Q did not (0.36 of copies) E has 0.6 and 0.4; where Q did alone (0.16), 0.4 and 0.6.
    exact = 0.2 * (0.36 - 0.16) / 0.52
    assert abs(estimate - exact) < 5 * np.sqrt(0.5 / trials)
    assert lower < exact


def test_one_key_is_too_few(tmp_path):
    with pytest.raises(ValueError, match="keys must be at least 2, got 1"):
        audited(tmp_path, keys=1)
