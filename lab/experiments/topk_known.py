"""Errors of the top-k mechanisms where the items are public and the counts are not."""

from dpbeam_lab.experiments.define import Experiment, Plot, Run, Table
from dpbeam_lab.experiments.sources import histogram

EXPERIMENT = Experiment(
    title="Top-k of known items",
    datasets={"Books": histogram("goodreads-books"), "Games": histogram("steam-200k")},
    budgets=[(epsilon, 1e-6) for epsilon in [0.25, 1, 4]],
    repetitions=20,
    methods=[
        Run("top-k-known", name="FastJoint", mechanism="fast-joint"),
        Run("top-k-known", name="PNF-Peel", mechanism="pnf-peel"),
        Run("top-k-known", name="CDP-Peel (published)", mechanism="cdp-peel", published=True),
        Run("top-k-known", name="CDP-Peel", mechanism="cdp-peel"),
    ],
    sweep={"k": [5, 10, 20, 30, 50, 100, 200]},
    measures=["topk_linf", "topk_l1", "topk_missing_mass"],
    tables=[
        Table(
            "l_inf by k at epsilon 1",
            rows=["dataset", "k"],
            value="topk_linf",
            statistic="median (quartiles)",
            where={"epsilon": [1]},
        ),
        Table(
            "l1 by k at epsilon 1",
            rows=["dataset", "k"],
            value="topk_l1",
            statistic="median (quartiles)",
            where={"epsilon": [1]},
        ),
        Table(
            "Missing mass by k at epsilon 1",
            rows=["dataset", "k"],
            value="topk_missing_mass",
            statistic="median (quartiles)",
            where={"epsilon": [1]},
        ),
        Table(
            "l_inf by epsilon at k = 100",
            rows=["dataset", "epsilon"],
            value="topk_linf",
            statistic="median (quartiles)",
            where={"k": [100]},
        ),
        Table(
            "l1 by epsilon at k = 100",
            rows=["dataset", "epsilon"],
            value="topk_l1",
            statistic="median (quartiles)",
            where={"k": [100]},
        ),
        Table(
            "Missing mass by epsilon at k = 100",
            rows=["dataset", "epsilon"],
            value="topk_missing_mass",
            statistic="median (quartiles)",
            where={"k": [100]},
        ),
    ],
    plots=[
        Plot(
            "l1",
            title="l1 against k at epsilon 1",
            x="k",
            y=["topk_l1"],
            panels="dataset",
            log=["x"],
            where={"epsilon": [1]},
            statistic="median",
        ),
        Plot(
            "linf",
            title="l_inf against k at epsilon 1",
            x="k",
            y=["topk_linf"],
            panels="dataset",
            log=["x"],
            where={"epsilon": [1]},
            statistic="median",
        ),
    ],
)
