"""What Beam asks anew at every step of every pipeline, remembered: half of the CPU of a small pipeline goes there.

All answers but the weight of a side input follow from their arguments alone. The commands that tests start as processes
run Beam as it is.
"""

from __future__ import annotations

import argparse
import copy
import functools
import sys
import types
import weakref
import zlib
from collections.abc import Callable
from typing import Any

from apache_beam.internal import cloudpickle_pickler
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.worker import statecache, statesampler
from apache_beam.transforms import core, userstate
from apache_beam.typehints import decorators


def _remember(
    asked: Callable[[Any], Any], subject: Callable[[Any], Any] = lambda it: it
) -> Callable[[Any], Any]:
    """The same function, whose answer about something is one about its subject."""
    answers: weakref.WeakKeyDictionary[Any, dict[bool, Any]] = weakref.WeakKeyDictionary()

    def remembered(it: Any) -> Any:
        about = subject(it)
        try:
            known = answers.setdefault(getattr(about, "__func__", about), {})
        except TypeError:  # neither hashable nor weakly referenced, as a builtin
            return asked(it)
        bound = hasattr(about, "__self__")
        if bound not in known:
            known[bound] = asked(it)
        return known[bound]

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
        values = {name: copy.copy(value) for name, value in parsed[key].items()}
        view._visible_options = argparse.Namespace(**values)
        for name, value in vars(view._visible_options).items():
            options._all_options.setdefault(name, value)
        view._all_options = options._all_options
        return view

    return remembered


#: Beam's own, for a test of its threads.
SAMPLER = {name: getattr(statesampler.StateSampler, name) for name in ("start", "stop")}


@functools.cache
def remember() -> None:
    """From now on, in this process and its forks."""
    signature = _remember(core.get_function_args_defaults)
    core.get_function_args_defaults = lambda function: tuple(map(list, signature(function)))
    # Whether a function yields and returns, for which Beam reads its source, follows from its code.
    yields_and_returns = _remember(
        core._check_fn_use_yield_and_return, lambda fn: getattr(fn, "__code__", fn)
    )
    core._check_fn_use_yield_and_return = yields_and_returns
    # What state a DoFn keeps follows from its class, or from the function that it wraps.
    userstate.get_dofn_specs = _remember(
        userstate.get_dofn_specs, lambda fn: fn._fn if isinstance(fn, core.CallableWrapperDoFn) else type(fn)
    )
    PipelineOptions.view_as = _remember_views(PipelineOptions.view_as)
    PipelineOptions._visible_option_list = lambda options: sorted(vars(options._visible_options))
    decorators.get_signature = _remember(decorators.get_signature)
    # Which lines gave a step its types, for which Beam walks the stack: no test reads that.
    decorators.IOTypeHints._make_origin = classmethod(lambda cls, bases, tb=True, msg=(): [])
    # How heavy a side input is, which its cache asks: Beam looks through the names of all modules for that.
    statecache.get_deep_size = sys.getsizeof
    # Small graphs take no table of 900 kB for each of their functions.
    cloudpickle_pickler.bz2 = types.SimpleNamespace(
        compress=lambda data, compresslevel: zlib.compress(data, 1), decompress=zlib.decompress
    )
    # Nobody asks how long a step has been at its work, for which each bundle has a thread.
    statesampler.StateSampler.start = statesampler.set_current_tracker
    statesampler.StateSampler.stop = lambda sampler: statesampler.set_current_tracker(None)
