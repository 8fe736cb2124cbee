"""How many calls of a run in one step wait in its pool of threads: they are made even when the program has ended."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from dpbeam.engine.ahead import few_ahead

STOPPED = """
import atexit, threading, time
from dpbeam.engine import in_process

stopped, made = threading.Event(), []

def work(number):
    time.sleep(0.02)
    made.append(number)
    if number == 10:
        stopped.set()

in_process.LINKS_FOR_THREADS = 0
in_process.check_trips = lambda program: None
in_process._run_trips = lambda program, blocks, keys, each, kept: list(each(work, range(200)))
step = threading.Thread(target=in_process.run_trips, args=(None, [], None), kwargs={"threads": 2}, daemon=True)
step.start()
stopped.wait()
atexit.register(lambda: print(len(made)))  # after the threads of pools have ended
"""


def test_few_calls_are_ahead_of_who_takes_their_results():
    begun = []
    with ThreadPoolExecutor(2) as pool:
        results = few_ahead(pool, 4, lambda a, b: (begun.append(a), a + b)[1], range(50), range(100, 150))
        assert begun == []
        assert next(results) == 100
        pool.submit(int).result()  # in its turn
        assert len(begun) == 4
        assert list(results) == list(range(102, 200, 2))
    assert sorted(begun) == list(range(50))


def test_a_call_that_fails_is_the_last():
    begun = []

    def work(number):
        begun.append(number)
        return 1 // (number - 3)

    with ThreadPoolExecutor(2) as pool, pytest.raises(ZeroDivisionError):
        list(few_ahead(pool, 4, work, range(50)))
    assert len(begun) <= 3 + 4


def test_a_program_that_is_stopped_does_not_finish_the_trip():
    done = subprocess.run([sys.executable, "-c", STOPPED], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and int(done.stdout) < 50
