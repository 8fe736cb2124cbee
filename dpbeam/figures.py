"""Figures as SVG and PNG, the same bytes for the same numbers. They can be read in print.

Lines differ in colour, marker and dash; colours are those of Okabe and Ito (2008), which people who are colour blind
can tell apart, and of different greys.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dpbeam.errors import SettingError, SetupError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("svg", "png")
COLOURS = ("#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7f7f7f")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*", "p", "h")
DASHES = ("-", "--", "-.", ":")


def line_style(place: int) -> dict[str, Any]:
    """Colour, marker and dash of the line at a place."""
    return {
        "color": COLOURS[place % len(COLOURS)],
        "marker": MARKERS[place % len(MARKERS)],
        "linestyle": DASHES[(place + place // len(COLOURS)) % len(DASHES)],
    }


def format_of(path: str, flag: str) -> str:
    """The format that the name of a file asks for, of FORMATS.

    Raises:
      InputError: it asks for none, or matplotlib is not installed; naming the flag.
    """
    format = os.path.splitext(path)[1].removeprefix(".")
    if format not in FORMATS:
        raise SettingError(f"{flag}: expected a name that ends in .svg or .png, got '{path}'")
    check_matplotlib(f"drop {flag}")
    return format


def check_matplotlib(drop: str) -> None:
    """Refuse to plan plots where they cannot be drawn.

    Args:
      drop: how to do without.

    Raises:
      InputError: matplotlib is not installed.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise SetupError(f"plots need matplotlib: pip install 'dpbeam[plots]', or {drop}") from None


def rendered(make: Callable[[], Figure], formats: Sequence[str]) -> dict[str, bytes]:
    """A figure in every format, the same bytes each time."""
    import matplotlib

    matplotlib.use("agg")
    settings: dict[str, Any] = {
        "svg.hashsalt": "dpbeam",
        "svg.fonttype": "none",
        "font.family": "DejaVu Sans",  # comes with matplotlib
        "font.size": 9,
    }
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # whatever the user has set
        for name, value in settings.items():
            matplotlib.rcParams[name] = value  # type: ignore[index]
        figure = make()
        by_format = {}
        for format in formats:
            file = io.BytesIO()
            metadata = {"Date": None, "Creator": None} if format == "svg" else {"Software": None}
            figure.savefig(file, format=format, dpi=150, metadata=metadata)
            by_format[format] = file.getvalue()
        return by_format
