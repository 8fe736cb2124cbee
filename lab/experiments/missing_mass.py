"""Dick, Joseph and Raman 2026, Figures 8 and 10.

Missing mass against D0 on small data, next to the sequential policy mechanisms with excess 3. steam-200k and
amazon-magazine are the published data; amazon-pantry is left out where --data does not hold it.
"""

from dpbeam_lab.experiments.define import Experiment, Plot, Run, Table
from dpbeam_lab.experiments.sources import folder

EXPERIMENT = Experiment(
    title="Missing mass against D0, small data",
    datasets={name: folder(name) for name in ("steam-200k", "amazon-magazine", "amazon-pantry")},
    budgets=[(epsilon, 1e-5) for epsilon in [1, 0.1]],
    repetitions=3,
    methods=[
        Run(name="Basic", method="basic"),
        Run(name="gsu8", method="gsu", rounds=8),
        Run("policy-gaussian", name="PolicyGaussian", excess=3),
        Run("greedy-update", name="GreedyUpdate", excess=3),
    ],
    sweep={"max_items_per_user": [1, 50, 100, 150, 200, 300]},
    measures=[
        "released",
        "missing_mass_1",
        "missing_mass_inf",
        "missing_mass_floor_1",
        "bound_1",
        "bound_1_zipf",
        "bound_1_printed",
        "bound_inf",
        "zipf_exponent",
        "zipf_factor",
    ],
    tables=[
        Table(
            "Missing mass at epsilon 1",
            rows=["dataset", "max_items_per_user"],
            value="missing_mass_1",
            where={"epsilon": [1]},
        ),
        Table(
            "Missing mass at epsilon 0.1",
            rows=["dataset", "max_items_per_user"],
            value="missing_mass_1",
            where={"epsilon": [0.1]},
        ),
        Table(
            "No algorithm misses less",
            rows=["dataset"],
            columns="epsilon",
            value="missing_mass_floor_1",
            statistic="mean",
        ),
    ],
    plots=[
        Plot(
            "missing_mass",
            x="max_items_per_user",
            y=["missing_mass_1"],
            lines="method",
            panels="dataset",
            where={"epsilon": [1]},
        ),
    ],
)
