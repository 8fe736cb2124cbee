"""The report: well-formed, readable in order, inert whatever the ledger holds, and nothing in it but the ledger."""

import itertools
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from dpbeam.accounting.ledger import KEY_FIXED_TEST, REPLACE_ONE_AGENT
from dpbeam.accounting.release import Others, Shard
from dpbeam.review import facts
from dpbeam.review.page import known_weaknesses, render
from dpbeam.review.verification import check_ledger
from dpbeam.selectors.registry import selectors
from dpbeam.series.config import plan_series, series_ledger
from dpbeam.series.family import SeriesConfig
from dpbeam.topk.config import plan_topk
from dpbeam.topk.family import TopKConfig
from tests.support.examples import ROOT
from tests.support.releases import RELEASE, ledger_of

OLD = sorted((ROOT / "tests" / "accounting" / "ledgers").glob("*.ledger.json"))
HOSTILE = (
    "</td><script>alert(1)</script><img src=x onerror='a()'>\"&amp;{{ 7*7 }}\u202eexe.\x00\x1b[31m\ud800"
)


def page_of(ledger, **more) -> str:
    text = ledger if isinstance(ledger, str) else ledger.to_json()
    parsed, statements = check_ledger(text)
    return render(text, parsed, statements, **{"name": "items", **more})


def tree(page: str) -> ET.Element:
    """The page as XML; fails where it is not well-formed."""
    root = ET.fromstring(page.split("<!DOCTYPE html>")[1])
    for node in root.iter():
        node.tag = node.tag.partition("}")[2] or node.tag
    return root


def text_of(node: ET.Element) -> str:
    return " ".join("".join(node.itertext()).split())


@pytest.fixture(scope="module")
def page() -> str:
    return page_of(ledger_of("gsu"), prepared_by="Ada")


@pytest.fixture(scope="module")
def root(page) -> ET.Element:
    return tree(page)


class TestStructure:
    def test_document(self, root):
        assert root.get("lang") == "en"
        assert text_of(root.find("head/title")) == "Release report: items"
        metas = {
            m.get("name") or m.get("http-equiv") or "charset": m.get("content") for m in root.iter("meta")
        }
        assert metas["viewport"] == "width=device-width, initial-scale=1"
        assert metas["Content-Security-Policy"].startswith("default-src 'none'; ")

    def test_landmarks_come_once_and_in_order(self, root):
        assert [child.tag for child in root.find("body")] == ["a", "header", "nav", "main", "footer"]
        assert len(list(root.iter("main"))) == 1

    def test_headings_go_down_one_step_at_a_time(self, root):
        levels = [int(node.tag[1]) for node in root.iter() if re.fullmatch("h[1-6]", node.tag)]
        assert levels.count(1) == 1 and levels[0] == 1
        assert all(after <= before + 1 for before, after in itertools.pairwise(levels))

    def test_ids_are_unique_and_every_reference_meets_one(self, root):
        ids = [node.get("id") for node in root.iter() if node.get("id")]
        assert len(ids) == len(set(ids))
        named = [w for n in root.iter() for w in (n.get("aria-labelledby") or "").split()]
        links = [a.get("href") for a in root.iter("a")]
        assert named and all(link.startswith("#") for link in links)
        assert {*named, *(link[1:] for link in links)} <= set(ids)

    def test_regions_have_names_of_their_own(self, root):
        names = [n.get("aria-label") for n in root.iter() if n.get("role") == "region"]
        assert names and len(names) == len(set(names)) and all(names)
        scrolling = [n for n in root.iter() if n.get("class") == "scroll"]
        assert all(n.get("tabindex") == "0" for n in scrolling), "a keyboard could not scroll it"

    def test_every_table_has_a_caption_and_headers(self, root):
        tables = list(root.iter("table"))
        assert len(tables) >= 6
        for table in tables:
            assert table[0].tag == "caption" and text_of(table[0])
            assert [th.get("scope") for th in table.find("thead/tr")] == ["col"] * len(table.find("thead/tr"))
            width = len(table.find("thead/tr"))
            for row in table.find("tbody"):
                assert row[0].tag == "th" and row[0].get("scope") == "row" and len(row) == width

    def test_nothing_is_loaded_or_run(self, page, root):
        tags = {node.tag for node in root.iter()}
        assert not tags & {"script", "img", "link", "iframe", "object", "form", "input", "video", "audio"}
        assert not [
            n for n in root.iter() for name in n.attrib if name.startswith("on") or name in ("src", "style")
        ]
        outside = re.sub(r'xmlns="http://www.w3.org/1999/xhtml"', "", page)
        assert not re.search(r"https?:|//\w|url\(|@import", outside)

    def test_signatures(self, root):
        rows = [[text_of(cell) for cell in row] for row in list(root.iter("table"))[-1].find("tbody")]
        assert rows == [
            ["Prepared by", "Ada", "", ""],
            ["Reviewed by", "", "", ""],
            ["Approved by", "", "", ""],
        ]


class TestColours:
    """WCAG 2.1: 4.5 for text and 3 for graphics, in every theme of the styles."""

    THEMES = re.findall(r":root \{([^}]*)\}", (ROOT / "dpbeam" / "data" / "report.css").read_text())

    def test_themes(self):
        assert len(self.THEMES) == 3  # light, dark, printed

    @pytest.mark.parametrize("theme", THEMES)
    def test_contrast(self, theme):
        colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", theme))

        def luminance(colour: str) -> float:
            parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
            linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
            return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

        def contrast(one: str, other: str) -> float:
            low, high = sorted((luminance(colours[one]), luminance(colours[other])))
            return (high + 0.05) / (low + 0.05)

        for behind in ("page", "panel"):
            for name in ("text", "soft", "link", "good", "bad", "open"):
                assert contrast(name, behind) >= 4.5, (name, behind)
        for name in ("rule",):
            assert contrast(name, "page") >= 3, name


class TestHostile:
    def hostile(self):
        release = replace(
            RELEASE,
            command=HOSTILE,
            release_id=HOSTILE,
            inputs=(HOSTILE,),
            outputs=(Shard(HOSTILE.replace("/", ""), 3, "ab" * 32),),
        )
        ledger = ledger_of(release=release, privacy_unit=HOSTILE, accounting=HOSTILE)
        ledger = replace(ledger, method=HOSTILE)
        ledger.parameters[HOSTILE] = {HOSTILE: [HOSTILE, {"a": HOSTILE}]}
        ledger.versions[HOSTILE] = HOSTILE
        values = json.loads(ledger.to_json())
        for event in (values["events"], *values["events"]["parts"]):
            event["label"] = HOSTILE
        return json.dumps(values)

    def test_strings_stay_text(self):
        page = page_of(self.hostile(), name=HOSTILE, prepared_by=HOSTILE)
        root = tree(page)
        assert {n.tag for n in root.iter()} == {n.tag for n in tree(page_of(ledger_of())).iter()}
        assert "<script" not in page and "<img" not in page and "49" not in text_of(root.find("body/header"))
        assert page.count("&lt;script&gt;alert(1)") >= 12
        assert not re.search("[\x00-\x08\x0b-\x1f\u202e\ud800]", page)
        assert "\\u202eexe.\\u0000\\u001b[31m\\ud800" in text_of(root)

    def test_attributes_cannot_be_left(self):
        for node in tree(page_of(self.hostile(), name='"><b x="', prepared_by="'")).iter():
            assert node.tag != "b" and "x" not in node.attrib

    def test_a_deep_and_a_long_ledger(self):
        ledger = ledger_of()
        deep: dict = {}
        ledger.parameters["deep"] = deep
        for _ in range(100):
            deep["x"] = deep = {}
        ledger.parameters["long"] = list(range(100_000))
        page = page_of(ledger)
        assert len(page) < 100_000 and "and 99,940 more" in page

    def test_many_files(self):
        shards = tuple(Shard(f"x-{n}", 1, "0" * 64) for n in range(300))
        page = page_of(ledger_of(release=replace(RELEASE, outputs=shards)))
        assert "And 200 more" in page and "x-99<" in page and "x-100<" not in page


class TestContents:
    def test_what_a_reviewer_looks_for(self, root, page):
        body = text_of(root.find("body"))
        for text in (
            "Whether all data of one user are in the input or not, the probability of any output changes by "
            "a factor of at most e^1 = 2.72, but for a probability of 1e-06.",
            "Committed 2026-01-31 (UTC)".replace(" ", ""),
            "logs-*.parquet",
            "nightly-31",
            "Items released3",
            "dpbeam verify --contents items.ledger.json",
            "ab" * 32,
            "users of 300 items",
            "limit of any algorithm",
        ):
            assert text.replace(" ", "") in body.replace(" ", ""), text
        assert page == page_of(ledger_of("gsu"), prepared_by="Ada"), "the same ledger, another page"

    def test_users_needed_are_those_of_the_plan(self, root):
        from dpbeam.selection.config import SelectionConfig
        from dpbeam.selection.plan import make_plan
        from dpbeam.selection.report import plan_report

        report = plan_report(make_plan(SelectionConfig(1.0, 1e-6, "gsu")))
        (table,) = [t for t in root.iter("table") if t.get("class") == "numbers"]
        rows = [[text_of(cell) for cell in row] for row in table.find("tbody")]
        limit = report["limit_of_any_algorithm"]
        assert rows[0][1:] == [str(limit[f"users_{p:g}"]) for p in (0.05, 0.5, 0.95)]
        needed = [[str(row[f"users_{p:g}"]) for p in (0.05, 0.5, 0.95)] for row in report["users_needed"]]
        assert [row[1:] for row in rows[1:]] == needed

    def test_every_event_is_there(self, root):
        ledger = ledger_of("gsu")
        tables = [t for t in root.iter("table") if text_of(t[0]).startswith("Mechanisms")]
        rows = [row for table in tables for row in table.find("tbody")]
        assert len(rows) == len(ledger.events.parts) == 9
        sigmas = [f"sigma {event.sigma:.6g}" for event in ledger.events.parts[:8]]
        assert all(sigma in text_of(row[2]) for sigma, row in zip(sigmas, rows))

    def test_a_fixed_key_is_no_guarantee(self):
        page = page_of(ledger_of(key_source=KEY_FIXED_TEST))
        header = text_of(tree(page).find("body/header"))
        assert "NOT PRIVATE." in header and "factor of at most" not in page

    def test_without_a_release_nothing_is_made_up(self):
        page = page_of(ledger_of(release=None))
        assert "does not tell when" in page and "Committed" not in page and "Items released" not in page

    def test_users_left_out(self):
        stated = ledger_of(release=replace(RELEASE, others=Others(1234, 56.5)))
        stated.parameters["others_sd"] = 56.5
        body = text_of(tree(page_of(stated)))
        assert "about 1234, standard deviation 56.5" in body
        assert "not asked for" in text_of(tree(page_of(ledger_of())))

    def test_contents_that_are_not_public_are_not_shown(self):
        release = replace(RELEASE, outputs=(Shard("x", None, None),))
        body = text_of(tree(page_of(ledger_of(release=release))))
        assert "not recorded: each agent sees its own row alone" in body

    def test_another_relation_and_a_pure_guarantee(self):
        ledger = ledger_of(
            "laplace", neighbouring_relation=REPLACE_ONE_AGENT, privacy_unit="one agent: one row"
        )
        assert facts.guarantee(ledger).startswith(
            "Whatever stands in the row of one agent, the probability of what all others see together changes by"
        )
        assert facts.guarantee(replace(ledger, delta=0.0)).endswith("at most e^1 = 2.72.")

    @pytest.mark.parametrize("path", OLD, ids=lambda path: path.name.split(".")[0])
    def test_old_ledgers_have_a_report(self, path):
        root = tree(page_of(path.read_text()))
        assert len(list(root.iter("table"))) >= 5

    @pytest.mark.parametrize("method", selectors())
    def test_every_selector_says_what_is_released(self, method):
        page = page_of(ledger_of(method, settings={"max_items_per_user": 8}))
        assert 'id="keeping"' in page and len(tree(page)) == 2

    def test_top_k(self):
        plan = plan_topk(TopKConfig(1.0, 1e-6, 10, mechanism="cdp-peel", noisy_counts=True))
        parameters = {
            "k": 10,
            "mechanism": "cdp-peel",
            "selector_share": plan.config.selector_share,
            "noisy_count_share": plan.config.noisy_count_share,
            "noisy_count_deviation": plan.counts.deviation,
            "choice_budget": plan.choice_budgets,
            "kbar": None,
            "public_domain": False,
            "selection": plan.selection.config.stated(),
            "selector": "gsu",
            "output": {"format": "parquet", "shards": 1},
        }
        ledger = replace(ledger_of(), method="top-k", events=plan.event, parameters=parameters)
        page = page_of(ledger)
        verdicts = {s.name: s.holds for s in check_ledger(ledger.to_json())[1]}
        assert verdicts.pop("other settings") is None and '<td class="open">stated</td>' in page
        assert all(verdicts.values()) and 'id="keeping"' in page and "Peeling" in page
        other = replace(ledger, parameters={**parameters, "k": 11})
        assert 'id="keeping"' not in page_of(other), "probabilities of other noise than the ledger's"


def test_pages_of_a_series_say_what_has_the_budget():
    """The window's and each night's state the whole budget: who signs thirty of them must see that it is one."""
    plan = plan_series(SeriesConfig(1.0, 1e-6, 3, first_night="2026-11-01"))
    window, night = (series_ledger(plan, series_id="x", fixed_key=False, night=night) for night in (None, 2))
    series = "of a series of 3 nights, all under this one budget."
    assert f"The window {series} Each night has a ledger of its own" in text_of(tree(page_of(window)))
    assert f"Night 2026-11-02 {series}" in text_of(tree(page_of(night)))
    forged = replace(night, parameters={**night.parameters, "night": HOSTILE, "nights": [HOSTILE]})
    page = page_of(json.dumps(json.loads(forged.to_json())))
    assert "<script" not in page and not re.search("[\x00-\x08\x0b-\x1f\u202e\ud800]", page)


def test_known_weaknesses_are_those_of_the_documents():
    text = (ROOT / "docs" / "explanation" / "privacy.md").read_text()
    stated = text.partition("\n## Known weaknesses\n\n")[2].partition("\n## ")[0].rstrip("\n")
    kept = (ROOT / "dpbeam" / "data" / "known_weaknesses.txt").read_text().rstrip("\n")
    assert kept == stated, (
        "copy the section of docs/explanation/privacy.md to dpbeam/data/known_weaknesses.txt"
    )
    assert len(known_weaknesses()) == len(re.findall("^- ", stated, re.M)) >= 9


def test_the_page_needs_no_beam_and_no_template_at_hand():
    assert Path(ROOT / "dpbeam" / "data" / "report.html.j2").exists()


def test_it_points_to_the_checker_and_the_theorems():
    page = text_of(tree(page_of(ledger_of(method="gsu"))))
    for path in ("proofs/check_ledger", "docs/how-to/check_a_release.md", "docs/explanation/proof.md"):
        assert path in page and (ROOT / path).exists()
