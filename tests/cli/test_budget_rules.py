"""One rule for epsilon and delta, at every door."""

import functools
import warnings

import pytest

import dpbeam
from dpbeam.cli import main
from dpbeam.errors import InputError

WRONG = [
    ("1", "0.999999", "delta must lie between"),
    ("50", "0.9", "delta must lie between"),
    ("1", "1e-320", "delta must lie between"),
    ("1", "2", "delta must lie strictly"),
    ("nan", "1e-5", "epsilon must be a finite number"),
    ("-1", "1e-5", "epsilon must be a finite number"),
]
COMMANDS = {
    "select": ["--input=x.csv", "--output=y"],
    "top-k": ["--input=x.csv", "--output=y", "--k=2"],
    "hitting-set": ["--input=x.csv", "--output=y", "--k=2"],
    "pack": ["--agents=x.csv", "--supplies=s.yaml", "--output=y"],
    "plan": [],
}
#: In few rounds: it takes a hundred otherwise.
pack = functools.partial(dpbeam.pack, supplies={"r": 1e9}, start_rounds=2, max_rounds=2)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("epsilon,delta,message", [WRONG[0], WRONG[4]])
def test_of_commands(command, epsilon, delta, message, capsys):
    assert main([command, *COMMANDS[command], f"--epsilon={epsilon}", f"--delta={delta}"]) == 2
    err = capsys.readouterr().err
    assert f"error: --{message}" in err and err.count("\n") == 1


@pytest.mark.parametrize("epsilon,delta,message", WRONG)
def test_in_memory(epsilon, delta, message):
    budget = {"epsilon": float(epsilon), "delta": float(delta)}
    data = {"user": ["a"], "item": ["x"], "agent": ["a"], "value": [1.0], "r": [1.0]}
    for run in (
        lambda: dpbeam.select(data, **budget),
        lambda: dpbeam.top_k(data, k=1, **budget),
        lambda: dpbeam.hitting_set(data, k=1, **budget),
        lambda: pack(data, **budget),
    ):
        with pytest.raises(InputError, match=f"^{message}"):
            run()


@pytest.mark.parametrize("epsilon", [10.0, 50.0])
def test_a_large_epsilon_is_said(epsilon, capsys):
    data = {"user": ["a"], "item": ["x"], "agent": ["a"], "value": [1.0], "r": [1.0]}
    budget = {"epsilon": epsilon, "delta": 1e-5}
    for run in (
        lambda: dpbeam.select(data, **budget),
        lambda: dpbeam.top_k(data, k=1, **budget),
        lambda: dpbeam.hitting_set(data, k=1, **budget),
        lambda: pack(data, **budget),
    ):
        assert sum("protects nobody" in line for line in warned(run)) == (epsilon > 10)


def warned(run) -> list[str]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        run()
    return [str(warning.message) for warning in seen]


@pytest.mark.parametrize(("delta", "times"), [(1e-4, 0), (1.1e-4, 1)])
def test_functions_say_that_a_delta_is_large(delta, times):
    data = {"user": ["a"], "item": ["x"], "agent": ["a"], "value": [1.0], "r": [1.0]}
    budget = {"epsilon": 1.0, "delta": delta}
    for run in (
        lambda: dpbeam.select(data, **budget),
        lambda: dpbeam.top_k(data, k=1, **budget),
        lambda: dpbeam.hitting_set(data, k=1, **budget),
        lambda: dpbeam.count(data, domain=["x"], **budget),
        lambda: dpbeam.Series(nights=2, **budget),
        lambda: pack(data, num_agents=11_000, **budget),
    ):
        assert sum(line.startswith("delta=0.00011 is ") for line in warned(run)) == times
    assert warned(lambda: pack(data, **budget)) == []


def test_functions_say_that_a_d0_is_far_from_the_default():
    data, budget = {"user": ["a"], "item": ["x"]}, {"epsilon": 1.0, "delta": 1e-5, "max_items_per_user": 2}
    for run in (
        lambda: dpbeam.select(data, **budget),
        lambda: dpbeam.top_k(data, k=1, **budget),
        lambda: dpbeam.hitting_set(data, k=1, **budget),
        lambda: dpbeam.Series(nights=2, **budget),
    ):
        [line] = warned(run)
        assert line.startswith("max_items_per_user=2 is far from 300, the default of ")
