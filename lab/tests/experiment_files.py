"""Files of experiments as text."""

IMPORTS = "from dpbeam_lab.experiments.define import *\nfrom dpbeam_lab.experiments.sources import *\n"
GOOD = {
    "title": "'Good'",
    "datasets": "{'zipf': synth(users=50, items=20)}",
    "budgets": "[(1, 1e-5)]",
    "methods": "[Run(method='basic')]",
}


def experiment(**parts: str | None) -> str:
    """A file with these parts, as text of Python, in place of those of GOOD; None leaves one out."""
    given = {name: part for name, part in {**GOOD, **parts}.items() if part is not None}
    return (
        f"{IMPORTS}EXPERIMENT = Experiment({', '.join(f'{name}={part}' for name, part in given.items())})\n"
    )
