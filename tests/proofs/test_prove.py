"""The theorems that Coq checks, and what each assumes, are those that docs/explanation/proof.md states."""

import filecmp
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "explanation" / "proof.md").read_text()


def stated() -> dict[str, str]:
    """Theorem -> axioms, of the rows of the page's table of theorems."""
    return dict(re.findall(r"^\| `(\w+\.\w+)` \| .* \| ([^|]+) \|$", PAGE, re.MULTILINE))


def test_every_theorem_of_the_sources_is_stated():
    written = {
        f"{path.stem}.{name}"
        for path in (ROOT / "proofs").glob("*.v")
        for name in re.findall(r"^Theorem (\w+)", path.read_text(), re.MULTILINE)
    }
    assert written == set(stated())


def test_no_source_assumes_by_the_way():
    """What is assumed is an argument of a theorem: no axiom, nothing admitted."""
    for path in (ROOT / "proofs").glob("*.v"):
        assert not re.search(
            r"\b(Axiom|Axioms|Parameter|Conjecture|Admitted|admit|Abort)\b", path.read_text()
        )


def test_coq_accepts_them_and_they_assume_what_is_stated():
    made = ROOT / "build" / "proofs"
    sources = [path.name for path in (ROOT / "proofs").glob("*.v")]
    if filecmp.cmpfiles(ROOT / "proofs", made, sources, shallow=False)[0] != sources:
        pytest.skip("scripts/prove, a stage of .ci/run, has not run on these proofs")
    printed = (made / "assumed").read_text()
    assumed = dict(re.findall(r"^(\w+\.\w+):\n((?:(?!\w+\.\w+:\n).*\n)+)", printed, re.MULTILINE))
    for name, text in assumed.items():
        axioms = set(re.findall(r"^(?:\w+\.)+(\w+)", text, re.MULTILINE))
        assert bool(axioms) == (text.strip() != "Closed under the global context")
        assert axioms == set(re.findall(r"`(\w+)`", stated()[name])), name
    assert set(assumed) == set(stated())
