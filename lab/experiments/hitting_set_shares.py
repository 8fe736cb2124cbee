"""Users missed by the selection's share of the budget. lab/docs/reference/hitting_set_results.md"""

from dpbeam_lab.experiments.define import Experiment, Run, Table
from dpbeam_lab.experiments.sources import folder

EXPERIMENT = Experiment(
    title="Shares of the selection",
    datasets={"Steam": folder("steam-200k"), "Magazine": folder("amazon-magazine")},
    budgets=[(epsilon, 1e-5) for epsilon in [1, 0.1]],
    repetitions=5,
    methods=[
        Run("hitting-set", name="gsu", selector="gsu", max_items_per_user=100),
        Run("hitting-set", name="basic", selector="basic", max_items_per_user=100),
    ],
    sweep={"selector_share": [0.3, 0.5, 0.7, 0.85], "k": [5, 10, 20, 50, 100, 200]},
    tables=[
        Table(
            "Users missed, gsu, epsilon 1",
            rows=["dataset", "selector_share"],
            columns="k",
            value="users_missed",
            statistic="median",
            where={"method": ["gsu"], "epsilon": [1]},
        ),
        Table(
            "Users missed, gsu, epsilon 0.1",
            rows=["dataset", "selector_share"],
            columns="k",
            value="users_missed",
            statistic="median",
            where={"method": ["gsu"], "epsilon": [0.1]},
        ),
        Table(
            "Users missed, basic, epsilon 1",
            rows=["dataset", "selector_share"],
            columns="k",
            value="users_missed",
            statistic="median",
            where={"method": ["basic"], "epsilon": [1]},
        ),
        Table(
            "Users missed, basic, epsilon 0.1",
            rows=["dataset", "selector_share"],
            columns="k",
            value="users_missed",
            statistic="median",
            where={"method": ["basic"], "epsilon": [0.1]},
        ),
    ],
)
