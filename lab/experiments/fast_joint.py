"""Wu and Zhang 2024, Section 5.

FastJoint gives what Joint gives, in less time. goodreads-books and steam-200k stand for their Books and Games.
"""

from dpbeam_lab.experiments.define import Experiment, Run, Table
from dpbeam_lab.experiments.sources import histogram

EXPERIMENT = Experiment(
    title="FastJoint next to Joint",
    datasets={"Books": histogram("goodreads-books"), "Games": histogram("steam-200k")},
    budgets=[(epsilon, 1e-6) for epsilon in [0.25, 1, 4]],
    repetitions=5,
    methods=[
        Run("top-k-known", name="Joint", mechanism="joint"),
        Run("top-k-known", name="FastJoint", mechanism="fast-joint"),
    ],
    sweep={"k": [10, 50, 100, 200]},
    measures=["topk_linf", "topk_l1"],
    tables=[
        Table(
            "Largest error at epsilon 1",
            rows=["dataset", "k"],
            value="topk_linf",
            statistic="median (sd)",
            where={"epsilon": [1]},
        ),
        Table(
            "Time at epsilon 1",
            rows=["dataset", "k"],
            value="cpu_seconds",
            statistic="median",
            where={"epsilon": [1]},
        ),
        Table(
            "Time at k = 100",
            rows=["dataset", "epsilon"],
            value="cpu_seconds",
            statistic="median",
            where={"k": [100]},
        ),
    ],
)
