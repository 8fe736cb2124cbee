"""Dick, Joseph and Raman 2026, Figures 1 and 9.

Missing mass against D0 on larger data. The published ones are Reddit, Movie Reviews and Amazon Games: reddit,
movielens and amazon-games are left out where --data does not hold them. reddit-220k and imdb-wordtok are neither.
"""

from dpbeam_lab.experiments.define import Experiment, Plot, Run, Table
from dpbeam_lab.experiments.sources import folder

EXPERIMENT = Experiment(
    title="Missing mass against D0, larger data",
    datasets={
        name: folder(name)
        for name in (
            "debian-descriptions",
            "git-authors",
            "reddit-220k",
            "imdb-wordtok",
            "reddit",
            "movielens",
            "amazon-games",
        )
    },
    budgets=[(epsilon, 1e-5) for epsilon in [1, 0.1]],
    methods=[
        Run(name="Basic", method="basic"),
        Run("policy-gaussian", name="PolicyGaussian", excess=3),
        Run("greedy-update", name="GreedyUpdate", excess=3),
    ],
    sweep={"max_items_per_user": [1, 50, 100, 150, 200, 300]},
    measures=["released", "missing_mass_1", "missing_mass_floor_1"],
    tables=[
        Table(
            "Missing mass at epsilon 1",
            rows=["dataset", "max_items_per_user"],
            value="missing_mass_1",
            statistic="mean",
            where={"epsilon": [1]},
        ),
        Table(
            "Missing mass at epsilon 0.1",
            rows=["dataset", "max_items_per_user"],
            value="missing_mass_1",
            statistic="mean",
            where={"epsilon": [0.1]},
        ),
        Table(
            "Released items at epsilon 1",
            rows=["dataset", "max_items_per_user"],
            value="released",
            statistic="mean",
            where={"epsilon": [1]},
        ),
    ],
    plots=[
        Plot(
            "missing_mass_large",
            x="max_items_per_user",
            y=["missing_mass_1"],
            lines="method",
            panels="dataset",
            where={"epsilon": [1]},
        ),
    ],
)
