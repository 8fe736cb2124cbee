"""Top-k of known items without a delta.

Sets in one draw, rankings in one draw, one item after the other. lab/docs/reference/topk_results.md
"""

from dpbeam_lab.experiments.define import Experiment, Run, Table
from dpbeam_lab.experiments.sources import folder, histogram

EXPERIMENT = Experiment(
    title="Top-k at delta 0",
    datasets={
        "Books": histogram("goodreads-books"),
        "Games": histogram("steam-200k"),
        "Magazine": folder("amazon-magazine"),
    },
    budgets=[(epsilon, 1e-6) for epsilon in [0.25, 1]],
    repetitions=20,
    methods=[
        Run("top-k-subset", name="canonical Lipschitz"),
        Run("top-k-subset", name="canonical Lipschitz, Gumbel", noise="gumbel"),
        Run("top-k-known", name="Joint", mechanism="joint"),
        Run("top-k-known", name="FastJoint", mechanism="fast-joint"),
        Run("top-k-known", name="PNF-Peel", mechanism="pnf-peel"),
    ],
    sweep={"k": [10, 20, 30, 50, 100, 200]},
    measures=["topk_missing_mass"],
    tables=[
        Table(
            "Missing mass",
            rows=["dataset", "epsilon", "k"],
            value="topk_missing_mass",
            statistic="median (quartiles)",
        ),
    ],
)
