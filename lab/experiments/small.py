"""Runs in seconds, on made-up data: what an experiment file looks like. See lab/docs/how-to/evaluate.md."""

from dpbeam_lab.experiments.define import Experiment, Plot, Run, Table
from dpbeam_lab.experiments.sources import synth

EXPERIMENT = Experiment(
    title="Selection on made-up data",
    datasets={"zipf": synth(users=2000, items=3000, mean_items_per_user=20, seed=1)},
    budgets=[(epsilon, 1e-5) for epsilon in [0.5, 2]],
    repetitions=3,
    methods=[
        Run(method="basic"),
        Run(method="mad2r"),
        Run(name="gsu4", method="gsu", rounds=4),
    ],
    sweep={"max_items_per_user": [5, 50]},
    tables=[
        Table("Released items", rows=["dataset", "epsilon", "max_items_per_user"], value="released"),
        Table(
            "Released items at the best D0",
            rows=["dataset", "epsilon"],
            value="released",
            best="max_items_per_user",
        ),
    ],
    plots=[
        Plot("epsilon", x="epsilon", y=["released"], lines="method", panels="max_items_per_user", log=["x"]),
    ],
)
