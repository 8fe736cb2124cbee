"""What Beam computes over and over while it builds and runs a job, computed once.

Why it stays, though it changes private places of Beam: a whole `dpbeam select` of 900 pairs takes 1.21 s of CPU with it
and 1.55 s without (the least of seven runs each, in turns, on a shared machine). In jobs of 300 users, imports apart,
signatures and formatters alone took the first of a process from 0.56 s of CPU to 0.41 s, the others take those that
follow from 0.25 s to 0.13 s. Without the stacks of type hints a `dpbeam select` of 1,800 rows that follows another in
its process takes 0.21 s instead of 0.23 s (the least of five times four runs, in turns).

- The signature of every method of every DoFn: 9,000 times for some 200 functions.
- The source of every DoFn, to warn of a `yield` beside a `return`.
- The states and timers of every DoFn, looked for in all its attributes: 190 times.
- The flags of a job, parsed anew for every view of its options: 230 parsers.
- A help formatter, with the size of the terminal, for each flag of a parser.
- The stack where each type hint was written, with the state of each file on it, for the text of an error.
- How many bytes a value that a worker remembers holds, with the globals of every module that it leads to.

All but the last two are functions of what they are asked for, so no answer changes. No worker of a job here remembers
anything large. Beam has no option for any of them.

And a bundle ends when it has ended: at the end of each Beam waits for the thread that looks, every 200 ms in the end,
what the worker does. With 5 ms `mad2r` on 7 million pairs took 1.75 s in place of 2.04, on others in random order 4.7
in place of 5.4 (medians of four runs each, in turns).
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any

from apache_beam.options import pipeline_options
from apache_beam.runners.worker import statecache, statesampler
from apache_beam.transforms import core, userstate
from apache_beam.typehints.decorators import IOTypeHints

Answer = tuple[list[str], list[Any]]
Specs = tuple[set[Any], set[Any]]
SAMPLING_MS = 5


@functools.cache
def compute_once() -> None:
    """Change Beam so in this process. Calling it again changes nothing."""
    for place, name, new in (
        (core, "get_function_args_defaults", remembering(core.get_function_args_defaults)),
        (core, "_check_fn_use_yield_and_return", remembering_source(core._check_fn_use_yield_and_return)),
        (userstate, "get_dofn_specs", remembering_specs(userstate.get_dofn_specs)),
        (pipeline_options._BeamArgumentParser, "_get_formatter", own_formatter),
        (
            pipeline_options.PipelineOptions,
            "__init__",
            remembering_flags(pipeline_options.PipelineOptions.__init__),
        ),
        (IOTypeHints, "_make_origin", without_stack(IOTypeHints._make_origin)),
        (statecache, "get_deep_size", own_size),
    ):
        setattr(place, name, new)
    sample_often()


@functools.cache
def sample_often() -> None:
    """Let no bundle of this process wait longer than SAMPLING_MS for its sampler; for workers as well."""
    statesampler.StateSampler.__init__.__defaults__ = (SAMPLING_MS,)


def remembering(read: Callable[[Any], Answer]) -> Callable[[Any], Answer]:
    """`read`, which maps a function to (names, defaults) of its arguments, with a memory.

    Methods share the answer of their function, functions that identity does not distinguish are read again.
    """
    known: dict[tuple[Any, bool], Answer] = {}

    @functools.wraps(read)
    def recall(function: Any) -> Answer:
        key = (getattr(function, "__func__", function), isinstance(function, MethodType))
        if not hasattr(key[0], "__code__"):
            return read(function)  # partials, classes, builtins: few, and some compare by value
        if key not in known:
            known[key] = read(function)
        names, defaults = known[key]
        return list(names), list(defaults)

    return recall


def remembering_source(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """`check`, which reads the source of a function, with a memory by code."""
    known: dict[Any, bool] = {}

    @functools.wraps(check)
    def recall(function: Any) -> bool:
        code = getattr(function, "__code__", None)
        if code is None:
            return check(function)
        if code not in known:
            known[code] = check(function)
        return known[code]

    return recall


def remembering_specs(read: Callable[[Any], Specs]) -> Callable[[Any], Specs]:
    """`read`, which maps a DoFn to its states and timers, with a memory by class.

    A DoFn with a method of its own, or whose class computes attributes, is read again.
    """
    known: dict[type, Specs] = {}

    @functools.wraps(read)
    def recall(fn: Any) -> Specs:
        kind = type(fn)
        if any(isinstance(value, MethodType) for value in getattr(fn, "__dict__", {}).values()):
            return read(fn)
        if kind not in known:
            specs = read(fn)
            own = [part for part in kind.__mro__ if part not in core.DoFn.__mro__]
            if any(isinstance(value, property) for part in own for value in vars(part).values()):
                return specs
            known[kind] = specs
        states, timers = known[kind]
        return set(states), set(timers)

    return recall


def remembering_flags(init: Callable[..., None]) -> Callable[..., None]:
    """`PipelineOptions.__init__`, with a memory of what a class of options makes of a list of flags."""
    known: dict[tuple[type, tuple[str, ...]], tuple[dict[str, Any], dict[str, Any]]] = {}

    @functools.wraps(init)
    def recall(options: Any, flags: Sequence[str] | None = None, **overrides: Any) -> None:
        if not isinstance(flags, (list, tuple)) or overrides:
            init(options, flags, **overrides)
            return
        key = (type(options), tuple(flags))
        if key not in known:
            init(options, flags)
            known[key] = _own(vars(options._visible_options)), _own(options._all_options)
            return
        visible, every = known[key]
        options.__dict__["_flags"] = flags
        options.__dict__["_visible_options"] = argparse.Namespace(**_own(visible))
        # One list for both, as where they are parsed: what is added to an option is seen in its views.
        options.__dict__["_all_options"] = {n: getattr(options._visible_options, n) for n in every}

    return recall


def _own(values: dict[str, Any]) -> dict[str, Any]:
    """The same values, with lists and dictionaries of its own."""
    return {n: v.copy() if isinstance(v, (list, dict, set)) else v for n, v in values.items()}


def without_stack(make: Callable[..., list[str]]) -> staticmethod[..., list[str]]:
    """`IOTypeHints._make_origin`, which says where hints come from, as it is where no stack is asked for."""

    @functools.wraps(make)
    def recall(bases: Any, tb: bool = True, msg: Sequence[str] = ()) -> list[str]:
        return make(bases, False, msg)

    return staticmethod(recall)


def own_size(*values: Any) -> int:
    """`statecache.get_deep_size`, without what the values refer to."""
    return sum(map(sys.getsizeof, values))


def own_formatter(parser: argparse.ArgumentParser) -> argparse.HelpFormatter:
    """The one formatter of a parser, which `add_argument` asks whether a metavar fits; help is not printed by it."""
    made = parser.__dict__.get("one_formatter")
    if made is None:
        made = parser.__dict__["one_formatter"] = argparse.HelpFormatter(prog=parser.prog, width=80)
    return made
