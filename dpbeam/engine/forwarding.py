"""A program around another one: whatever it does not change, it forwards.

A wrapper that forwarded by hand would drop what `Program` learns later; a test walks the public names of `Program` and
holds this class to all of them.
"""

from __future__ import annotations

from typing import Any

from dpbeam.engine.program import Program


class _OfInner:
    """An attribute or a method of `inner`, unless an instance or a subclass has its own: it has no `__set__`."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, program: Forwarding | None, owner: type | None = None) -> Any:
        return self if program is None else getattr(program.inner, self._name)


def _of_inner() -> Any:
    return _OfInner()


class Forwarding(Program):
    """`inner`, unchanged; subclasses override what they change. `noises` follows from `noise` and `hub_noise`.

    Attributes:
      inner: the program inside.
    """

    trips: int = _of_inner()
    norm: str = _of_inner()
    cap: int = _of_inner()
    weight_grid: float = _of_inner()
    reply_columns = _of_inner()
    output: str = _of_inner()
    may_end: bool = _of_inner()
    chooses: bool = _of_inner()
    released_names: tuple[str, ...] = _of_inner()

    sum_names = _of_inner()
    weigh = _of_inner()
    block_state_trip = _of_inner()
    reads_block = _of_inner()
    noise = _of_inner()
    norm_on = _of_inner()
    release_test = _of_inner()
    touches = _of_inner()
    meets = _of_inner()
    summarise = _of_inner()
    hub_noise = _of_inner()
    done = _of_inner()
    decide = _of_inner()
    hub_output = _of_inner()
    finish_block = _of_inner()
    exact = _of_inner()
    observe = _of_inner()
    threshold = _of_inner()
    reply = _of_inner()
    released = _of_inner()

    def __init__(self, inner: Program):
        self.inner = inner


def check_goes_on(program: Program, last: int | None = None) -> None:
    """Refuse a program that another one cannot go on from, as it ends without its shards.

    Args:
      last: its last trip where nobody may meet then, as others do; None: anybody may.

    Raises:
      ValueError: naming the class of the innermost program.
    """
    inside = program
    while isinstance(inside, Forwarding):
        inside = inside.inner
    name = type(inside).__name__
    if program.output != "shards" or program.may_end:
        raise ValueError(f"{name} ends with its {program.output}: nothing can go on from its shards")
    if last is not None and program.meets(last) is not None:
        raise ValueError(
            f"parts of {name} meet after its last trip, when what follows meets: it cannot go on"
        )
