"""What Beam asks anew at every step of every pipeline, remembered: half of the CPU of a small pipeline goes there.

Both answers follow from their arguments alone. The commands that tests start as processes run Beam as it is.
"""

from __future__ import annotations

import argparse
import copy
import functools
import weakref
from collections.abc import Callable
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms import core

Arguments = tuple[list[str], list[Any]]


def _remember_signatures(asked: Callable[[Any], Arguments]) -> Callable[[Any], Arguments]:
    """The arguments of a function and their defaults, which Beam reads of every method of every DoFn several times."""
    answers: weakref.WeakKeyDictionary[Any, dict[bool, Arguments]] = weakref.WeakKeyDictionary()

    def remembered(function: Any) -> Arguments:
        try:
            of_function = answers.setdefault(getattr(function, "__func__", function), {})
        except TypeError:  # neither hashable nor weakly referenced, as a builtin
            return asked(function)
        bound = hasattr(function, "__self__")
        if bound not in of_function:
            of_function[bound] = asked(function)
        names, defaults = of_function[bound]
        return list(names), list(defaults)

    return remembered


def _remember_views(
    asked: Callable[[PipelineOptions, type], PipelineOptions],
) -> Callable[[PipelineOptions, type], PipelineOptions]:
    """The flags of a class of options, for which Beam makes a parser each time that a step looks at one of them."""
    parsed: dict[tuple[type, tuple[str, ...]], dict[str, Any]] = {}

    def remembered(options: PipelineOptions, cls: type) -> PipelineOptions:
        if options._flags is None:  # those of the process
            return asked(options, cls)
        key = (cls, tuple(options._flags))
        if key not in parsed:
            parsed[key] = copy.deepcopy(vars(cls(options._flags)._visible_options))
        view = cls.__new__(cls)
        view._flags = options._flags
        view._visible_options = argparse.Namespace(**copy.deepcopy(parsed[key]))
        for name, value in vars(view._visible_options).items():
            options._all_options.setdefault(name, value)
        view._all_options = options._all_options
        return view

    return remembered


@functools.cache
def remember() -> None:
    """From now on, in this process and its forks."""
    core.get_function_args_defaults = _remember_signatures(core.get_function_args_defaults)
    PipelineOptions.view_as = _remember_views(PipelineOptions.view_as)
