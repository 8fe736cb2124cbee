"""The budget split of the two-round methods: published [0.1, 0.9]; DP-SIPS also [0.05, 0.15, 0.8]."""

from dpbeam_lab.experiments.define import Experiment, Run, Table
from dpbeam_lab.experiments.sources import folder

EXPERIMENT = Experiment(
    title="Released items against the budget split",
    datasets={name: folder(name) for name in ("reddit-220k", "imdb-wordtok", "debian-descriptions")},
    budgets=[(1, 1e-5)],
    repetitions=3,
    methods=[
        Run(
            name="DP-SIPS published",
            method="dp-sips",
            preset="published",
            max_items_per_user=100,
            sweep={
                "budget_split": [
                    [0.05, 0.95],
                    [0.1, 0.9],
                    [0.2, 0.8],
                    [0.3, 0.7],
                    [0.5, 0.5],
                    [0.05, 0.15, 0.8],
                ]
            },
        ),
        Run(
            name="MAD2R published",
            method="mad2r",
            preset="published",
            max_items_per_user=100,
            sweep={"budget_split": [[0.05, 0.95], [0.1, 0.9], [0.2, 0.8], [0.3, 0.7], [0.5, 0.5]]},
        ),
        Run(
            name="MAD2R",
            method="mad2r",
            max_items_per_user=100,
            sweep={"budget_split": [[0.05, 0.95], [0.1, 0.9], [0.2, 0.8], [0.3, 0.7], [0.5, 0.5]]},
        ),
    ],
    measures=["released"],
    tables=[
        Table(
            "Released items",
            rows=["dataset", "method"],
            columns="budget_split",
            value="released",
            statistic="mean",
        ),
    ],
)
