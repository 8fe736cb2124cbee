"""Published methods at their best D0 on smaller data, next to what `dpbeam select` releases.

Of each published method the last key tries every D0, and the five others run at the best of them. dpbeam's own methods
run at their default settings, "default" as `dpbeam select` does without a word more than the budget.
lab/docs/reference/results.md
"""

from dpbeam_lab.experiments.define import Experiment, Run, Table
from dpbeam_lab.experiments.sources import folder

D0 = {"max_items_per_user": [1, 2, 3, 5, 10, 30, 100, 200, 300, 500, 1000]}
OF_MAD = {"max_items_per_user": [at for at in D0["max_items_per_user"] if at >= 4]}  # it refuses less

EXPERIMENT = Experiment(
    title="Published methods at their best D0, smaller data",
    datasets={
        name: folder(name)
        for name in (
            "steam-200k",
            "amazon-magazine",
            "higgs-mention-reply",
            "git-authors-files",
        )
    },
    budgets=[(1, 1e-5)],
    repetitions=6,
    best="max_items_per_user",
    methods=[
        Run(name="Basic", sweep=D0, method="basic"),
        Run(name="weighted Laplace", sweep=D0, method="laplace"),
        Run(name="DP-SIPS", sweep=D0, method="dp-sips", preset="published"),
        Run(
            name="DP-SIPS, 3 rounds",
            sweep=D0,
            method="dp-sips",
            preset="published",
            budget_split=[0.05, 0.15, 0.8],
        ),
        Run(name="MAD", sweep=OF_MAD, method="mad"),
        Run(name="MAD2R", sweep=OF_MAD, method="mad2r", preset="published"),
        Run("mad2r-released-bit", name="MAD2R, bit", sweep=D0, budget_split=[0.1, 0.9]),
        Run("uniform-released-bit", name="DP-SIPS, bit", sweep=D0, budget_split=[0.05, 0.15, 0.8]),
        Run("policy-gaussian", name="PolicyGaussian", sweep=D0, excess=4),
        Run("policy-released-bit", name="PolicyGaussian, bit", sweep=D0, excess=4),
        Run("greedy-update", name="GreedyUpdate", sweep=D0, excess=4),
        Run(name="default"),
        Run(name="gsu16", method="gsu", rounds=16),
        Run(name="vote", method="vote"),
        Run(name="bits", method="bits"),
    ],
    measures=["released", "share_of_entries"],
    tables=[
        Table("Released items", rows=["method"], columns="dataset", best="max_items_per_user"),
        Table(
            "Pairs whose item is released",
            rows=["method"],
            columns="dataset",
            value="share_of_entries",
            statistic="mean",
            best="max_items_per_user",
        ),
    ],
)
