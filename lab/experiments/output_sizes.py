"""Chen et al. 2025, Table 2.

Released items at eps 1, delta 1e-5, D0 100. imdb-wordtok stands for their IMDb, higgs-mention-reply is a third of
their Higgs. Methods without "published" run as `dpbeam select` would.
"""

from dpbeam_lab.experiments.define import Experiment, Run, Table
from dpbeam_lab.experiments.sources import folder

EXPERIMENT = Experiment(
    title="Released items, method by method",
    datasets={
        name: folder(name)
        for name in (
            "steam-200k",
            "amazon-magazine",
            "higgs-mention-reply",
            "git-authors-files",
            "git-authors",
            "debian-descriptions",
            "reddit-220k",
            "imdb-wordtok",
        )
    },
    budgets=[(1, 1e-5)],
    repetitions=5,
    methods=[
        Run(name="Basic", method="basic", max_items_per_user=100),
        Run(name="DP-SIPS published", method="dp-sips", preset="published", max_items_per_user=100),
        Run(
            name="DP-SIPS published, 3 rounds",
            method="dp-sips",
            preset="published",
            budget_split=[0.05, 0.15, 0.8],
            max_items_per_user=100,
        ),
        Run(name="MAD", method="mad", max_items_per_user=100),
        Run(name="MAD2R published", method="mad2r", preset="published", max_items_per_user=100),
        Run("policy-gaussian", name="PolicyGaussian", max_items_per_user=100, excess=4),
        Run("greedy-update", name="GreedyUpdate", excess=4),
        Run("greedy-update", name="GreedyUpdate, one item", excess=4, single=True),
        Run(name="DP-SIPS", method="dp-sips"),
        Run(name="MAD2R", method="mad2r"),
        Run(name="gsu8", method="gsu", rounds=8),
        Run(name="gsu16", method="gsu", rounds=16),
        Run(name="bits", method="bits"),
        Run(name="bits one round", method="bits", budget_split=[1.0]),
        Run(name="vote", method="vote"),
    ],
    measures=["released", "missing_mass_1", "share_of_users", "share_of_entries", "limit"],
    tables=[
        Table("Released items", rows=["method"], columns="dataset", value="released"),
        Table("CPU seconds", rows=["method"], columns="dataset", value="cpu_seconds", statistic="median"),
    ],
)
