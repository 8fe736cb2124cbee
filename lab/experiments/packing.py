"""Welfare of packing next to the algorithms of the literature. lab/docs/reference/packing_results.md"""

from dpbeam_lab.experiments.define import Experiment, Plot, Run, Table
from dpbeam_lab.experiments.sources import each, synth_market

EXPERIMENT = Experiment(
    title="Packing",
    datasets=each(
        "market", synth_market, agents=20000, resources=[1, 5, 20], supply_share=[0.025, 0.05, 0.1], seed=1
    ),
    budgets=[(1, 1e-6)],
    methods=[
        Run("pack", name="dpbeam"),
        Run("pack-published", name="published"),
        Run("pack-fixed-steps", name="fixed steps"),
        Run("pack-gradient", name="gradient"),
        Run("pack-online", name="online"),
    ],
    tables=[
        Table("Welfare", rows=["resources", "supply_share"], value="feasible_welfare", statistic="mean"),
        Table("Largest use", rows=["resources", "supply_share"], value="use", statistic="mean"),
        Table(
            "Supply needed",
            rows=["resources", "supply_share"],
            value="supply_needed",
            statistic="mean",
            where={"method": ["dpbeam"]},
        ),
        Table("Rounds", rows=["resources", "supply_share"], value="rounds", statistic="mean"),
    ],
    plots=[
        Plot(
            "welfare",
            title="Welfare against supply",
            x="supply_share",
            y=["feasible_welfare"],
            panels="resources",
        ),
    ],
)
