"""What the datasets look like.

Users of an item against its rank, and the share of users by how many items they hold. lab/docs/reference/results.md
"""

from dpbeam_lab.experiments.define import Experiment, Plot, Run
from dpbeam_lab.experiments.sources import folder

EXPERIMENT = Experiment(
    title="The datasets",
    datasets={
        name: folder(name)
        for name in (
            "steam-200k",
            "amazon-magazine",
            "higgs-mention-reply",
            "git-authors-files",
            "git-authors",
            "debian-descriptions",
            "imdb-wordtok",
            "reddit-220k",
        )
    },
    budgets=[(1, 1e-5)],
    methods=[
        Run(method="basic"),
    ],
    measures=["users_by_rank", "users_by_set_size"],
    tables=[],
    plots=[
        Plot(
            "ranks",
            title="Users of an item by its rank",
            x="rank",
            y=["users_by_rank"],
            lines="dataset",
            log=["x", "y"],
        ),
        Plot(
            "sets",
            title="Share of users by the number of their items",
            x="set_size",
            y=["users_by_set_size"],
            lines="dataset",
            log=["x"],
        ),
    ],
)
