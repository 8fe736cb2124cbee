"""Chen et al. 2025, Figure 1 and "Absolute Utility".

Items of the data and released ones by how many users hold them, with the share of users and of entries that are
covered, next to the limit of any algorithm.
"""

from dpbeam_lab.experiments.define import Experiment, Plot, Run, Table
from dpbeam_lab.experiments.sources import folder

EXPERIMENT = Experiment(
    title="Coverage by item frequency",
    datasets={name: folder(name) for name in ("reddit-220k", "debian-descriptions", "git-authors")},
    budgets=[(1, 1e-5)],
    repetitions=3,
    methods=[
        Run(name="MAD2R published", method="mad2r", preset="published", max_items_per_user=100),
        Run(name="gsu8", method="gsu", rounds=8, max_items_per_user=100),
    ],
    measures=[
        "released",
        "share_of_users",
        "share_of_entries",
        "items_by_frequency",
        "released_by_frequency",
        "keep_rate",
        "keep_limit",
    ],
    tables=[
        Table("Released items", rows=["dataset"], value="released", statistic="mean"),
        Table("Users that hold a released item", rows=["dataset"], value="share_of_users", statistic="mean"),
        Table("Entries of released items", rows=["dataset"], value="share_of_entries", statistic="mean"),
    ],
    plots=[
        Plot(
            "coverage",
            kind="bar",
            x="frequency",
            y=["items_by_frequency", "released_by_frequency"],
            lines="method",
            panels="dataset",
            log=["y"],
        ),
        Plot(
            "keep_rate",
            x="frequency",
            y=["keep_rate", "keep_limit"],
            lines="method",
            panels="dataset",
            log=["x"],
        ),
    ],
)
