"""Chen et al. 2025, Appendix C.2.

Every user holds one common item and two random ones of 1,000. The paper states no D0; MAD's sensitivity is proved for
d_max of 4 or more.
"""

from dpbeam_lab.experiments.define import Experiment, Run, Table
from dpbeam_lab.experiments.sources import uniform

EXPERIMENT = Experiment(
    title="One heavy item",
    datasets={"heavy": uniform(users=15000, items=1000, items_per_user=2, common_items=1, seed=1)},
    budgets=[(1, 1e-5)],
    repetitions=20,
    methods=[
        Run(name="Basic", method="basic", preset="published"),
        Run(name="MAD", method="mad", preset="published", max_adaptive_degree=4),
        Run(
            name="DP-SIPS published, 2 rounds", method="dp-sips", preset="published", budget_split=[0.1, 0.9]
        ),
        Run(
            name="DP-SIPS published, 3 rounds",
            method="dp-sips",
            preset="published",
            budget_split=[0.05, 0.15, 0.8],
        ),
        Run(name="MAD2R", method="mad2r", max_adaptive_degree=4),
        Run(name="gsu8", method="gsu", rounds=8),
    ],
    sweep={"max_items_per_user": [4, 10, 100]},
    measures=["released"],
    tables=[
        Table("Released items", rows=["method"], columns="max_items_per_user", value="released"),
    ],
)
