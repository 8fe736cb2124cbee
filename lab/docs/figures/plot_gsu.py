"""Draws docs/figures/gsu.svg: what gsu does with synthetic data. Run from the repository's root.

    python docs/figures/plot_gsu.py

20,000 made-up users hold up to 100 of 5,000 items whose popularity falls like 1/rank; eps 1, delta 1e-5, 8 rounds.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np

from dpbeam.engine.in_process import run_blocks
from dpbeam.engine.program import Keys
from dpbeam.kernels.grid import UNITS
from dpbeam.kernels.pairs import Block, build_block, partition_pairs
from dpbeam.randomness import RunKey
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import make_plan
from dpbeam.selectors.gsu.program import GsuProgram
from dpbeam_lab.audit.neighbours import names_of, numbers_of
from dpbeam_lab.audit.transcript import Transcript, run_observed

USERS, ITEMS = 20_000, 5_000
PATHS = 12  # per group
GROUPS = (
    ("Basic finds it too", "#888888"),
    ("gsu finds it, Basic does not", "#1b6ca8"),
    ("not found", "#d1495b"),
)


def synthetic(keys: Keys, cap: int) -> Block:
    rng = np.random.default_rng(7)
    share = 1.0 / np.arange(1, ITEMS + 1)
    degrees = np.minimum(100, rng.geometric(1 / 25, USERS))
    users = np.repeat(np.arange(USERS), degrees)
    items = rng.choice(ITEMS, len(users), p=share / share.sum())
    messages = [c for _, c in partition_pairs(names_of(users), names_of(items), keys.pairs, 1, cap)]
    return build_block(0, messages, keys.pairs, 1, cap)


def plan_of(method: str):
    options = {"rounds": 8, "max_items_per_user": 100} if method == "gsu" else {}
    return make_plan(SelectionConfig(1.0, 1e-5, method, **options)).program


def statistics(program: GsuProgram, run: Transcript) -> np.ndarray:
    """Z after each round, (rounds, items)."""
    steps = [
        a * f * run.noisy[r] / UNITS for r, (a, f) in enumerate(zip(program.coefficients, program.fractions))
    ]
    return np.cumsum(steps, axis=0)


def groups(block: Block, keys: Keys, run: Transcript) -> list[np.ndarray]:
    basic = np.zeros(ITEMS, bool)
    basic[numbers_of(run_blocks(plan_of("basic"), [block], keys).items)] = True
    found = run.released[max(run.released)]
    near = ~found & run.known & (run.sums[0] > np.quantile(run.sums[0], 0.7))
    return [basic & found, found & ~basic, near]


def draw() -> plt.Figure:
    keys = Keys(RunKey.insecure_fixed("figure"))
    program = plan_of("gsu")
    block = synthetic(keys, program.cap)
    run = run_observed(program, [block], keys, ITEMS)
    z, members = statistics(program, run), groups(block, keys, run)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.4), constrained_layout=True)
    rounds = np.arange(1, program.trips + 1)
    rng = np.random.default_rng(1)
    for (name, colour), mask in zip(GROUPS, members):
        some = rng.choice(np.flatnonzero(mask), PATHS, replace=False)
        for item in some:
            crossed = np.flatnonzero([run.released[r][item] for r in range(program.trips)])
            last = crossed[0] if len(crossed) else program.trips - 1
            left.plot(rounds[: last + 1], z[: last + 1, item], color=colour, linewidth=0.8, alpha=0.8)
            if len(crossed):
                left.plot(rounds[last], z[last, item], color=colour, marker="o", markersize=3)
        sums = np.array([run.sums[r][mask].mean() / UNITS for r in range(program.trips)])
        right.plot(
            rounds, sums, color=colour, marker="o", markersize=3, label=f"{name} ({int(mask.sum())} items)"
        )
    left.plot(rounds, program.thresholds, color="black", linewidth=1.6, label="threshold")
    left.set_ylim(-10, 35)
    left.set(xlabel="round", ylabel="statistic Z", title="Items leave when they cross (dots)")
    left.legend(loc="upper left", frameon=False, fontsize=8)
    right.set(xlabel="round", ylabel="mean weight per item and round", title="Users aim at what is undecided")
    right.set_yscale("log")
    right.legend(frameon=False, fontsize=8)
    return figure


if __name__ == "__main__":
    matplotlib.rcParams["svg.hashsalt"] = "dpbeam"
    draw().savefig(
        Path(__file__).resolve().parents[3] / "docs" / "figures" / "gsu.svg", metadata={"Date": None}
    )
