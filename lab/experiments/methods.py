"""Released items of every variant of every selector at its own defaults, and of the sequential oracles.

lab/docs/reference/results.md
"""

from dpbeam_lab.experiments.define import Experiment, Plot, Run, Table
from dpbeam_lab.experiments.sources import folder

EXPERIMENT = Experiment(
    title="Released items, method by method",
    datasets={
        name: folder(name)
        for name in (
            "steam-200k",
            "higgs-mention-reply",
            "amazon-magazine",
            "debian-descriptions",
            "git-authors-files",
            "git-authors",
            "imdb-wordtok",
            "reddit-220k",
        )
    },
    budgets=[(1, 1e-5)],
    repetitions=5,
    methods=[
        Run(method="all"),
        Run("policy-gaussian", name="PolicyGaussian", excess=4),
        Run("greedy-update", name="GreedyUpdate", excess=4),
    ],
    measures=["released", "missing_mass_1", "share_of_users", "limit", "keep_rate", "keep_limit"],
    tables=[
        Table("Released items", rows=["method"], columns="dataset", value="released"),
        Table("Missing mass", rows=["method"], columns="dataset", value="missing_mass_1", statistic="mean"),
        Table("No algorithm releases more on average", columns="epsilon", value="limit", statistic="mean"),
        Table("Time", rows=["method"], columns="dataset", value="cpu_seconds", statistic="median"),
    ],
    plots=[
        Plot(
            "keep",
            title="Items kept by frequency",
            x="frequency",
            y=["keep_rate", "keep_limit"],
            lines="method",
            panels="dataset",
            log=["x"],
            where={"method": ["basic", "mad2r", "gsu16"]},
        ),
    ],
)
