"""Items under numbers: what is kept is found again."""

import threading

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbeam.kernels.kept import KeptItems


@given(st.lists(st.lists(st.binary(max_size=5), max_size=6), max_size=6), st.randoms())
def test_every_number_finds_its_item(parts, random):
    kept = KeptItems()
    firsts = [kept.keep(pa.array(part, pa.large_binary())) for part in parts]
    assert firsts == [sum(map(len, parts[:at])) for at in range(len(parts))]
    items = [item for part in parts for item in part]
    numbers = [random.randrange(len(items)) for _ in range(20 if items else 0)]
    taken = kept.take(np.array(numbers, np.int64))
    assert taken.type == pa.large_binary() and taken.to_pylist() == [items[number] for number in numbers]


@pytest.mark.parametrize("number", [-1, 3])
def test_a_number_of_no_item_is_refused(number):
    kept = KeptItems()
    kept.keep(pa.array([b"a", b"b", b"c"], pa.large_binary()))
    with pytest.raises(IndexError, match="from 0 to 2"):
        kept.take(np.array([0, number]))


def test_threads_keep_at_once():
    kept, numbers = KeptItems(), {}

    def keep(thread: int) -> None:
        for turn in range(200):
            name = b"%d %d" % (thread, turn)
            numbers[name] = kept.keep(pa.array([name] * (1 + turn % 3), pa.large_binary()))

    threads = [threading.Thread(target=keep, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kept.take(np.array(list(numbers.values()))).to_pylist() == list(numbers)
