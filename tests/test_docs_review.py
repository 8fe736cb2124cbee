"""The reviewer's page covers every mechanism; whatever the documents name exists; sentences and pages are short."""

import inspect
import re
import runpy
from pathlib import Path

import pytest

from dpbeam.selectors.registry import selectors
from dpbeam.topk import mechanisms

ROOT = Path(__file__).resolve().parent.parent
CHECK = runpy.run_path(str(ROOT / "scripts" / "check_docs"))
REVIEW = (ROOT / "docs" / "explanation" / "review.md").read_text(encoding="utf-8")


def headings() -> str:
    return " ".join(re.findall(r"^## (.+)$", REVIEW, re.MULTILINE))


def test_links_sections_paths_and_names_exist():
    assert CHECK["faults"]() == []


def test_sentences_and_pages_are_short():
    assert CHECK["long_parts"]() == []


@pytest.mark.parametrize("method", selectors())
def test_every_selector_is_on_the_page(method):
    assert re.search(rf"(?<![\w-]){method}(?![\w-])", headings())


def test_every_mechanism_of_top_k_is_on_the_page():
    kinds = [kind for _, kind in inspect.getmembers(mechanisms, inspect.isclass) if "name" in vars(kind)]
    names = {kind.name for kind in kinds}
    assert {"cdp-peel", "limited-domain"} <= names
    assert [name for name in names if name not in headings()] == []


def test_every_mechanism_says_claim_code_tests_and_weakness():
    parts = re.split(r"^## ", REVIEW, flags=re.MULTILINE)[3:-1]
    assert len(parts) >= 8
    for part in parts:
        for word in ("*Claim*", "- Tests: ", "- Weak: ", "`dpbeam/", "`tests/"):
            assert word in part, (part.splitlines()[0], word)


@pytest.mark.parametrize(
    "text,fault",
    [
        ("`tests/test_x.py::test_gone`", "no such name tests/test_x.py::test_gone"),
        ("`tests/test_x.py::TestX.gone`", "no such name tests/test_x.py::TestX.gone"),
        ("`tests/test_y.py::test_x`", "no such name tests/test_y.py::test_x"),
        ("`tests/test_y.py`", "no such path tests/test_y.py"),
        ("[a](b.md)", "broken link b.md"),
        ("[a](a.md#other)", "no such section a.md#other"),
        ("[a](#other)", "no such section #other"),
    ],
)
def test_what_does_not_exist_is_found(text, fault, tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_x.py").write_text(
        "LIMIT = 1\nclass TestX:\n    def test_x(self):\n        pass\n"
    )
    good = (
        "`tests/test_x.py::TestX.test_x` `tests/test_x.py::LIMIT` `tests/test_x.py` [a](a.md#5-one-to-two-b)"
    )
    (tmp_path / "a.md").write_text(f"# A\n\n## 5. One to (two, b)\n\n{good}\n")
    assert CHECK["faults"](tmp_path) == []
    (tmp_path / "c.md").write_text(text + "\n")
    assert CHECK["faults"](tmp_path) == [f"c.md: {fault}"]


def test_what_is_long_is_said(tmp_path):
    """Code, comments and formulas count as a word at most; a cell and an item of a list end a sentence."""
    folder = tmp_path / "docs" / "how-to"
    folder.mkdir(parents=True)
    page = folder / "a.md"
    short = " ".join(["Word"] * CHECK["SENTENCE_WORDS"])
    code = "    " + "code " * 40
    page.write_text(
        f"# A\n\n{short}.\n{short}: [x](y z) `{short}`.\n\n{code}\n\n```\n{code}\n```\n\n<!-- {short} {short} -->\n"
        f"- {short}\n- {short}\n\n| {short} | {short} |\n|---|---|\n\n$$\n{short} {short}\n$$\n\n${short}\n{short}$\n"
    )
    assert [line.partition(": ")[2] for line in CHECK["long_parts"](tmp_path)] == [
        "a sentence of 37 words: Word Word Word Word Word Word Word Word ..."
    ]
    page.write_text(f"{short} word\n")
    assert len(CHECK["long_parts"](tmp_path)) == 1
    page.write_text("Short.\n\n" * 1_501)
    assert CHECK["long_parts"](tmp_path) == ["docs/how-to/a.md: 1,501 words, 1,500 are allowed"]
    page.write_text("Short.\n")
    assert CHECK["long_parts"](tmp_path) == []
    (tmp_path / "docs" / "c.md").write_text("Short.\n\n" * 60_000)
    assert CHECK["long_parts"](tmp_path) == ["docs: 60,001 words, 60,000 are allowed"]
