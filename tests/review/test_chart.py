"""The chart shows the numbers that it is given, where they belong."""

import math
import re
import xml.etree.ElementTree as ET

import pytest

from dpbeam.review.chart import Curve, draw, ticks


def points(most, chance):
    chart = ET.fromstring(draw([Curve("x", chance, "line0")], most, title="t", description="d"))
    (path,) = [p for p in chart.iter("path") if p.get("class") == "line0"]
    numbers = [tuple(map(float, pair.split())) for pair in path.get("d")[1:].split("L")]
    texts = {t.text: (float(t.get("x")), float(t.get("y"))) for t in chart.iter("text")}
    return numbers, texts


def test_points_lie_between_the_ticks_that_they_should():
    shown, texts = points(1_000, lambda users: 0.25 if users < 100 else 1.0)
    low, high = texts["25 %"][1] - 4, texts["100 %"][1] - 4
    at_100 = texts["100"][0]
    assert all(abs(y - (low if x < at_100 else high)) < 0.06 for x, y in shown if abs(x - at_100) > 2)
    assert shown[0][0] == texts["1"][0] and shown[-1][0] == pytest.approx(texts["1 k"][0], abs=0.1)
    middle = (texts["1"][0] + texts["100"][0]) / 2
    assert texts["10"][0] == pytest.approx(middle, abs=0.1), "the axis is logarithmic"


def test_probabilities_out_of_range_stay_inside():
    shown, texts = points(10, lambda users: 1.5 - users)
    assert shown[0][1] == pytest.approx((texts["50 %"][1]) - 4, abs=0.06), "one user, 0.5"
    assert shown[-1][1] == pytest.approx(texts["0 %"][1] - 4, abs=0.06), "below 0"
    assert points(10, lambda users: 2.0)[0][0][1] == pytest.approx(texts["100 %"][1] - 4, abs=0.06), "above 1"


@pytest.mark.parametrize("most", [10, 99, 1_000, 10**7, 10**18])
def test_ticks(most):
    marks = ticks(most)
    assert marks[0] == 1 and marks[-1] <= most and marks == sorted(marks) and 3 <= len(marks) <= 10
    assert all(re.fullmatch("[125]0*", str(tick)) for tick in marks)
    assert math.log10(marks[-1]) >= math.log10(most) / 2
