"""Top-k of an unknown domain: which selector, and how much of the budget it gets. lab/docs/reference/topk_results.md"""

from dpbeam_lab.experiments.define import Experiment, Run, Table
from dpbeam_lab.experiments.sources import folder

EXPERIMENT = Experiment(
    title="Selectors and their shares",
    datasets={"Steam": folder("steam-200k"), "Magazine": folder("amazon-magazine")},
    budgets=[(1, 1e-5)],
    repetitions=3,
    methods=[
        Run("top-k", name="basic + cdp-peel", mechanism="cdp-peel", selector="basic"),
        Run("top-k", name="gsu + cdp-peel", mechanism="cdp-peel", selector="gsu"),
    ],
    sweep={"selector_share": [0.3, 0.5, 0.7], "k": [50, 200]},
    measures=["topk_missing_mass"],
    tables=[
        Table(
            "Missing mass",
            rows=["dataset", "method", "selector_share"],
            columns="k",
            value="topk_missing_mass",
            statistic="median",
        ),
    ],
)
