"""A few processes that run tasks; which one holds which task is known, also when it dies.

The standard library's executor fails all tasks when a process dies and does not say whose it was; here that task is
tried once more and then named, and the others go on.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from dpbeam.errors import InputError

_ATTEMPTS = 2
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class WorkerDiedError(RuntimeError):
    """A task killed its process every time."""


class TaskError(RuntimeError):
    """A task raised; the message is the error's, the cause its trace."""


@dataclass
class _Worker:
    process: Any
    pipe: Connection
    task: int | None = None


def run_tasks(
    work: Callable[[Any], Any], tasks: Sequence[Any], count: int, name: Callable[[Any], str] = str
) -> Iterator[tuple[int, Any]]:
    """(number, result) of every task, as they finish; tasks begin in their order.

    Args:
      work: runs a task; a function of a module. One process runs one task at a time.
      count: processes; with 1 everything runs in this one.
      name: what messages call a task.

    Raises:
      InputError: a task raised it.
      TaskError: a task raised something else.
      WorkerDiedError: a task's process died, twice.
    """
    if count <= 1 or len(tasks) <= 1:
        for number, task in enumerate(tasks):
            yield number, _here(work, task, name)
        return
    with started(work, min(count, len(tasks)), name) as run:
        yield from run(tasks)


@contextlib.contextmanager
def started(
    work: Callable[[Any], Any], count: int, name: Callable[[Any], str] = str
) -> Iterator[Callable[[Sequence[Any]], Iterator[tuple[int, Any]]]]:
    """Processes for several lots of tasks, one lot after the other, each to its end; else as `run_tasks`."""
    with _pool(work, count) as (workers, start):
        yield lambda tasks: _dispatch(workers, start, tasks, name)


def _here(work: Callable[[Any], Any], task: Any, name: Callable[[Any], str]) -> Any:
    try:
        return work(task)
    except InputError as error:
        raise type(error)(f"{name(task)}: {error}") from error
    except Exception as error:
        raise TaskError(f"{name(task)}: {type(error).__name__}: {error}") from error


def _dispatch(
    workers: list[_Worker], start: Callable[[], _Worker], tasks: Sequence[Any], name: Callable[[Any], str]
) -> Iterator[tuple[int, Any]]:
    waiting = list(range(len(tasks)))[::-1]
    attempts = [0] * len(tasks)
    left = len(tasks)
    while left:
        for worker in workers:
            if worker.task is None and waiting:
                worker.task = waiting.pop()
                attempts[worker.task] += 1
                with contextlib.suppress(OSError):  # it has died since; seen below, by its pipe
                    worker.pipe.send(tasks[worker.task])
        busy = {worker.pipe: worker for worker in workers if worker.task is not None}
        for ready in wait(list(busy)):
            worker = busy[ready]  # type: ignore[index]
            number = worker.task
            assert number is not None
            try:
                failed, result = worker.pipe.recv()
            except (EOFError, OSError):
                worker.process.join()
                worker.pipe.close()
                if attempts[number] >= _ATTEMPTS:
                    raise WorkerDiedError(
                        f"the process of {name(tasks[number])} died {_ATTEMPTS} times "
                        f"({_cause(worker.process.exitcode)}); what is finished is kept"
                    ) from None
                waiting.append(number)
                place = workers.index(worker)
                workers[place] = start()
                continue
            if failed is not None:
                raise failed(f"{name(tasks[number])}: {result[0]}") from RuntimeError(result[1])
            worker.task = None
            left -= 1
            yield number, result


def _cause(code: int | None) -> str:
    if code == -signal.SIGKILL:
        return "killed: out of memory?"
    return f"exit code {code}"


@contextlib.contextmanager
def _pool(work: Callable[[Any], Any], count: int) -> Iterator[tuple[list[_Worker], Callable[[], _Worker]]]:
    context = multiprocessing.get_context("spawn")
    workers: list[_Worker] = []

    def start() -> _Worker:
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(work, theirs), daemon=True)
        with _one_thread_each():
            process.start()
        theirs.close()
        return _Worker(process, ours)

    try:
        workers += [start() for _ in range(count)]
        yield workers, start
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.join()
            worker.pipe.close()


@contextlib.contextmanager
def _one_thread_each() -> Iterator[None]:
    """Numerical libraries read these when they are loaded: one process per core, one thread each."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _serve(work: Callable[[Any], Any], pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops us
    import pyarrow as pa

    pa.set_cpu_count(1)
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        try:
            answer: tuple[type | None, Any] = (None, work(task))
        except Exception as error:
            kind = type(error) if isinstance(error, InputError) else TaskError
            text = str(error) if kind is not TaskError else f"{type(error).__name__}: {error}"
            answer = (kind, (text, traceback.format_exc()))
        try:
            pipe.send(answer)
        except OSError:
            return
