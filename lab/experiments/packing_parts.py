"""What each part of packing is worth. lab/docs/reference/packing_results.md"""

from dpbeam_lab.experiments.define import Experiment, Run, Table
from dpbeam_lab.experiments.sources import each, synth_market

EXPERIMENT = Experiment(
    title="Parts of packing",
    datasets=each("market", synth_market, agents=20000, resources=10, supply_share=[0.1, 0.05], seed=1),
    budgets=[(epsilon, 1e-6) for epsilon in [1, 4]],
    repetitions=2,
    methods=[
        Run("pack", name="as it is"),
        Run("pack", name="no margin in the target", margin=False),
        Run("pack", name="no start", start_rounds=0),
        Run("pack", name="no start, 30 % before averaging", start_rounds=0, settle_share=0.3),
        Run(
            "pack",
            name="no start, no margin, 30 % before averaging",
            start_rounds=0,
            settle_share=0.3,
            margin=False,
        ),
        Run("pack", name="averaging all", start_rounds=0, settle_share=0.001, margin=False),
    ],
    measures=["welfare", "use", "rounds"],
    tables=[
        Table(
            "Welfare at epsilon 1",
            rows=["method"],
            columns="supply_share",
            value="welfare",
            statistic="mean",
            where={"epsilon": [1]},
        ),
        Table(
            "Welfare at epsilon 4",
            rows=["method"],
            columns="supply_share",
            value="welfare",
            statistic="mean",
            where={"epsilon": [4]},
        ),
        Table(
            "Rounds",
            rows=["method"],
            columns="supply_share",
            value="rounds",
            statistic="mean",
            where={"epsilon": [1]},
        ),
    ],
)
