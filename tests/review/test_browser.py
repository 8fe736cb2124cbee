"""The report in a browser: on a phone, in the dark, printed, without a network, and as a screen reader tells it."""

from __future__ import annotations

import json
import re

import pytest

from dpbeam.review.page import render
from dpbeam.review.verification import check_ledger
from tests.review.test_page import HOSTILE, page_of
from tests.support.chromium import DESK, PHONE, Chromium, find_chromium
from tests.support.releases import ledger_of

pytestmark = [
    pytest.mark.engines,
    pytest.mark.skipif(
        find_chromium() is None, reason="needs Chromium (on Debian: apt-get install chromium)"
    ),
]
METHODS = ("gsu", "vote", "mad2r")


@pytest.fixture(scope="module")
def browser():
    with Chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder, paths = tmp_path_factory.mktemp("pages"), {}
    for method in METHODS:
        paths[method] = folder / f"{method}.html"
        paths[method].write_text(page_of(ledger_of(method)), encoding="utf-8")
    ledger = ledger_of(privacy_unit=HOSTILE)
    ledger.parameters["x" * 300] = "y" * 3_000
    text = json.dumps({**json.loads(ledger.to_json()), "method": HOSTILE})
    parsed, statements = check_ledger(text)
    paths["hostile"] = folder / "hostile.html"
    page = render(text, parsed, statements, name="n" * 200, prepared_by=HOSTILE)
    paths["hostile"].write_text(page, encoding="utf-8")
    return paths


@pytest.mark.parametrize("name", [*METHODS, "hostile"])
@pytest.mark.parametrize("screen", [PHONE, DESK], ids=["phone", "desk"])
def test_nothing_is_cut_off_or_loaded(name, screen, browser, pages):
    browser.open(pages[name], screen)
    assert browser.value("innerWidth") == screen["width"]
    assert browser.value("document.documentElement.scrollWidth") <= screen["width"]
    assert browser.value("document.compatMode") == "CSS1Compat"
    assert browser.requests == [pages[name].as_uri()] and browser.problems == []
    wide = "[...document.querySelectorAll('main > section, h1, p, li, dd')]"
    beyond = browser.value(f"{wide}.filter(e => e.getBoundingClientRect().right > innerWidth + 1).length")
    assert beyond == 0
    if screen is PHONE:
        size = "parseFloat(getComputedStyle(e).fontSize)"
        sizes = f"[...document.querySelectorAll('p, td, th, dd, dt, li')].map(e => {size})"
        assert browser.value(f"Math.min(...{sizes})") >= 14


def test_dark_and_light(browser, pages):
    shown = {}
    for dark in (False, True):
        browser.open(pages["gsu"], dark=dark)
        style = "getComputedStyle(document.body)"
        shown[dark] = (browser.value(f"{style}.backgroundColor"), browser.value(f"{style}.color"))
    assert shown == {
        False: ("rgb(255, 255, 255)", "rgb(27, 31, 36)"),
        True: ("rgb(20, 23, 26)", "rgb(233, 236, 239)"),
    }


def test_in_the_order_of_a_screen_reader(browser, pages):
    browser.open(pages["gsu"])
    told = browser.spoken()
    headings = [name for role, name in told if role == "heading"]
    assert headings[:3] == ["items", "Release", "Checks"] and headings[-1] == "Signatures"
    landmarks = [role for role, _ in told if role in ("banner", "navigation", "main", "contentinfo")]
    assert landmarks == ["banner", "navigation", "main", "contentinfo"]
    tables = [name for role, name in told if role == "table"]
    assert (
        tables[0] == "Statements of the ledger"
        and tables[-1] == "Who answers for this release"
        and all(tables)
    )
    headers = {role for role, _ in told}
    assert {"rowheader", "columnheader", "caption"} & headers >= {"rowheader", "columnheader"}
    guarantee = next(i for i, (_, name) in enumerate(told) if name.startswith("Whether all data of one user"))
    assert guarantee < told.index(("heading", "Release")), "the guarantee comes first"


def test_printed(browser, pages, tmp_path):
    browser.open(pages["gsu"], dark=True, media="print")
    assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.value("getComputedStyle(document.querySelector('nav')).display") == "none"
    printed = browser.pdf()
    assert printed.startswith(b"%PDF-") and 2 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 8


def test_a_page_that_scrolls_is_seen(browser, tmp_path):
    path = tmp_path / "wide.html"
    path.write_text(
        "<!DOCTYPE html><meta name=viewport content='width=device-width'><div style='width:900px'>x</div>"
    )
    browser.open(path, PHONE)
    assert browser.value("document.documentElement.scrollWidth") > browser.value("innerWidth") or (
        browser.value("innerWidth") > PHONE["width"]
    )
    path.write_text("<!DOCTYPE html><img src='http://127.0.0.1:9/x.png'>")
    browser.open(path)
    assert len(browser.requests) == 2
