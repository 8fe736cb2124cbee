"""How a result shows itself: as a frame of other libraries, and in a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dpbeam.accounting.ledger import Ledger
from dpbeam.errors import visible
from dpbeam.families.registry import family_of
from dpbeam.selection.report import even_chance, plan_report

if TYPE_CHECKING:
    import pandas
    import polars

#: Rows that a notebook shows.
FIRST_ROWS = 20


class ReleasedTable:
    """A table and the ledger of what it cost; an Arrow table to others.

    `polars.DataFrame(result)` and `pyarrow.table(result)` work.

    Attributes:
      rows: what a row of the table is called.
      note: what whoever sees the table must know.
    """

    table: pa.Table
    ledger: Ledger
    rows = "items"
    note = ""

    def to_pandas(self) -> pandas.DataFrame:
        """The table for pandas, which must be installed."""
        return self.table.to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """The table for polars, which must be installed."""
        import polars

        return polars.DataFrame(self.table)

    def __len__(self) -> int:
        return self.table.num_rows

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        ledger = self.ledger
        private = "" if ledger.private else ", NOT PRIVATE"
        budget = f"epsilon={ledger.epsilon:g}, delta={ledger.delta:g}"
        return f"{type(self).__name__}({len(self)} {self.rows}, method={ledger.method!r}, {budget}{private})"

    def _repr_html_(self) -> str:
        """For notebooks: the first rows, what was spent, and what decided."""
        said = "".join(f"<p>{escape(line)}</p>" for line in self._lines())
        head = "".join(f"<th>{_cell(name)}</th>" for name in self.table.schema.names)
        columns = (column.slice(0, FIRST_ROWS).to_pylist() for column in self.table.columns)
        body = "".join(f"<tr>{''.join(f'<td>{_cell(v)}</td>' for v in row)}</tr>" for row in zip(*columns))
        return f"<div>{said}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"

    def _lines(self) -> Iterator[str]:
        ledger, shown = self.ledger, min(len(self), FIRST_ROWS)
        if not ledger.private:
            yield "NOT PRIVATE: a fixed key made this result; never release it"
        if self.note:
            yield self.note
        rest = f", of which the first {shown} are shown" if shown < len(self) else ""
        yield f"{len(self)} {self.rows}{rest}"
        yield f"budget spent: epsilon {ledger.epsilon:g}, delta {ledger.delta:g} ({ledger.accounting} accounting)"
        settings: dict[str, Any] = ledger.parameters.get("selection") or ledger.parameters
        decided = f"method {ledger.method}"
        if (selector := ledger.parameters.get("selector")) is not None:
            decided += f", selection by {selector}"
        if "max_items_per_user" in settings:
            decided += f": of each user at most {settings['max_items_per_user']} items count"
        yield decided
        family = family_of(ledger.method)
        selection = None if family is None else family.selection_of(family.planned_again(ledger))
        if selection is not None:
            yield even_chance(plan_report(selection))


def _cell(value: Any) -> str:
    return "" if value is None else escape(visible(str(value)))
