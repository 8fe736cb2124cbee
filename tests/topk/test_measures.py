"""Error measures against hand-computed values."""

import numpy as np
import pytest

from dpbeam.topk.measures import TopkErrors, topk_errors

COUNTS = np.array([1, 10, 6, 3])


def test_by_hand():
    assert topk_errors(COUNTS, [1, 2], 2) == TopkErrors(0.0, 0, 0)
    assert topk_errors(COUNTS, [2, 1], 2) == TopkErrors(0.0, 8, 4)  # the order counts in l1 and l_inf
    assert topk_errors(COUNTS, [1, 0], 2) == TopkErrors(5 / 20, 5, 5)
    assert topk_errors(COUNTS, [3, 1, 2], 3) == TopkErrors(0.0, 7 + 4 + 3, 7)


def test_short_answers_lack_the_whole_count():
    assert topk_errors(COUNTS, [2], 3) == TopkErrors(13 / 20, 4 + 6 + 3, 6)
    assert topk_errors(COUNTS, [], 2) == TopkErrors(16 / 20, 16, 10)
    assert topk_errors(np.zeros(3, int), [0], 2) == TopkErrors(0.0, 0, 0)


@pytest.mark.parametrize(
    ("positions", "k", "message"),
    [
        ([0, 1, 2], 2, "at most k = 2 distinct items"),
        ([1, 1], 2, "at most k = 2 distinct items"),
        ([0], 5, "at least k = 5 items, got 4"),
        ([0], 0, "k must be an integer of at least 1"),
    ],
)
def test_refused(positions, k, message):
    with pytest.raises(ValueError, match=message):
        topk_errors(COUNTS, positions, k)
