"""Keep probabilities as inline SVG: fixed shapes and numbers only, drawn without a library, coloured by the page.

A plot library would bring its own fonts and colours, which neither follow dark mode nor shrink on a phone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

_WIDTH, _HEIGHT = 360, 236
_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 10, 10, 40
_POINTS = 100


@dataclass(frozen=True)
class Curve:
    """A line of the chart.

    Attributes:
      name: for the legend.
      chance: users -> probability.
      style: class of the line, "line0" and so on.
    """

    name: str
    chance: Callable[[int], float]
    style: str


def draw(curves: Sequence[Curve], most_users: int, *, title: str, description: str) -> str:
    """The chart as an SVG element; users on a logarithmic axis from 1 to `most_users`, probability from 0 to 1.

    Args:
      title, description: plain text without markup, for who cannot see it.
    """
    users = _grid(most_users)
    lines = [f'<path class="{curve.style}" d="{_path(curve, users, most_users)}"/>' for curve in curves]
    return "\n".join(
        [
            f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-labelledby="chart-title chart-text">',
            f'<title id="chart-title">{title}</title>',
            f'<desc id="chart-text">{description}</desc>',
            *_axes(most_users),
            *lines,
            "</svg>",
        ]
    )


def key(style: str) -> str:
    """A sample of a line, for the legend."""
    return f'<svg class="key" viewBox="0 0 30 8" aria-hidden="true"><path class="{style}" d="M0 4H30"/></svg>'


def _grid(most: int) -> list[int]:
    points = np.exp(np.linspace(0.0, math.log(most), _POINTS))
    return sorted({round(value) for value in points.tolist()})


def _path(curve: Curve, users: Sequence[int], most: int) -> str:
    points = [f"{_x(u, most):.1f} {_y(min(1.0, max(0.0, curve.chance(u)))):.1f}" for u in users]
    return "M" + "L".join(points)


def _x(users: float, most: int) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * math.log(users) / math.log(most)


def _y(probability: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * probability


def _axes(most: int) -> list[str]:
    parts = []
    for tenth in (0, 25, 50, 75, 100):
        y = _y(tenth / 100)
        parts.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>')
        parts.append(f'<text x="{_LEFT - 5}" y="{y + 4:.1f}" text-anchor="end">{tenth} %</text>')
    for users in ticks(most):
        x = _x(users, most)
        parts.append(f'<path class="grid" d="M{x:.1f} {_TOP}V{_HEIGHT - _BOTTOM}"/>')
        parts.append(
            f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 15}" text-anchor="middle">{_short(users)}</text>'
        )
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(
        f'<text x="{middle:.1f}" y="{_HEIGHT - 6}" text-anchor="middle">users that hold the item</text>'
    )
    return parts


def ticks(most: int) -> list[int]:
    """Powers of ten up to `most`; with 2 and 5 times where there are few, one in so many where there are many."""
    powers = [10**k for k in range(int(math.log10(most)) + 1)]
    if len(powers) <= 3:
        return [f * p for p in powers for f in (1, 2, 5) if f * p <= most]
    return powers[:: math.ceil(len(powers) / 8)]


def _short(users: int) -> str:
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if users >= size:
            return f"{users // size} {unit}"
    return str(users)
