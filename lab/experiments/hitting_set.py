"""Users missed by a k-hitting set.

The command, its parts, the published method, and baselines without privacy. lab/docs/reference/hitting_set_results.md
"""

from dpbeam_lab.experiments.define import Experiment, Plot, Run, Table
from dpbeam_lab.experiments.sources import folder

EXPERIMENT = Experiment(
    title="Users missed by a k-hitting set",
    datasets={"Steam": folder("steam-200k"), "Magazine": folder("amazon-magazine")},
    budgets=[(epsilon, 1e-5) for epsilon in [1, 0.1]],
    repetitions=5,
    methods=[
        Run("hitting-set", name="gsu", selector="gsu", max_items_per_user=100),
        Run("hitting-set", name="basic", selector="basic", max_items_per_user=100),
        Run(
            "hitting-set-parts",
            name="gsu, all users",
            choices="all-users",
            selector="gsu",
            max_items_per_user=100,
        ),
        Run(
            "hitting-set-parts",
            name="gsu, all users, k composed choices",
            choices="composed",
            selector="gsu",
            max_items_per_user=100,
        ),
        Run(
            "hitting-set-parts",
            name="published",
            choices="published",
            selector="basic",
            max_items_per_user=100,
        ),
        Run("true-union"),
        Run("greedy"),
    ],
    sweep={"k": [5, 10, 20, 50, 100, 200]},
    tables=[
        Table(
            "Users missed at epsilon 1",
            rows=["dataset", "method"],
            columns="k",
            value="users_missed",
            statistic="median",
            where={"epsilon": [1]},
        ),
        Table(
            "Users missed at epsilon 0.1",
            rows=["dataset", "method"],
            columns="k",
            value="users_missed",
            statistic="median",
            where={"epsilon": [0.1]},
        ),
        Table(
            "Theorem 4.5: users by which the published method may fall short of 1 - 1/e of the best",
            rows=["dataset", "epsilon"],
            columns="k",
            value="hits_gap_bound",
            statistic="mean",
            where={"method": ["published"]},
        ),
    ],
    plots=[
        Plot(
            "steam",
            title="Users missed on Steam",
            x="k",
            y=["users_missed"],
            panels="epsilon",
            log=["x", "y"],
            where={"dataset": ["Steam"]},
            statistic="median",
        ),
        Plot(
            "magazine",
            title="Users missed on Magazine",
            x="k",
            y=["users_missed"],
            panels="epsilon",
            log=["x", "y"],
            where={"dataset": ["Magazine"]},
            statistic="median",
        ),
    ],
)
