"""Wu and Zhang 2024, Section 5: beta, the chance that FastJoint prunes more than it should, hardly matters."""

from dpbeam_lab.experiments.define import Experiment, Run, Table
from dpbeam_lab.experiments.sources import histogram

EXPERIMENT = Experiment(
    title="FastJoint and its beta",
    datasets={"Books": histogram("goodreads-books"), "Games": histogram("steam-200k")},
    budgets=[(1, 1e-6)],
    repetitions=20,
    methods=[
        Run(
            "top-k-known",
            name="FastJoint",
            mechanism="fast-joint",
            k=100,
            sweep={"beta": [0.015625, 0.00390625, 0.0009765625, 0.000244140625, 6.103515625e-5]},
        ),
    ],
    measures=["topk_linf"],
    tables=[
        Table("Largest error", rows=["dataset"], columns="beta", value="topk_linf", statistic="median (sd)"),
        Table("Time", rows=["dataset"], columns="beta", value="cpu_seconds", statistic="median"),
    ],
)
