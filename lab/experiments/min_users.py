"""What a floor on users costs: released items at the default D0, without a floor (1) and with two."""

from dpbeam_lab.experiments.define import Experiment, Run, Table
from dpbeam_lab.experiments.sources import folder

EXPERIMENT = Experiment(
    title="Released items over a floor on users",
    datasets={name: folder(name) for name in ("git-authors", "higgs-mention-reply")},
    budgets=[(epsilon, 1e-5) for epsilon in [1, 4]],
    repetitions=3,
    methods=[
        Run(name="Basic", method="basic"),
        Run(name="MAD2R", method="mad2r"),
        Run(name="gsu16", method="gsu", rounds=16),
        Run(name="bits", method="bits"),
        Run(name="vote", method="vote"),
    ],
    sweep={"min_users": [1, 5, 10]},
    measures=["released"],
    tables=[
        Table("Released items", rows=["dataset", "epsilon", "method"], columns="min_users", value="released"),
    ],
)
