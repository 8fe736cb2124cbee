"""What whoever adds a format can get wrong, planted in that of ORC (docs/how-to/add_a_format.md)."""

from pathlib import Path

from dpbeam import plugins
from dpbeam.io import formats
from dpbeam.testing import checks
from tests.support.faults import Fault, Matrix
from tests.support.format_files import OrcFiles

_NAME = "orc-of-others"
_FILE = "orc.py"
_RANGE = """            if not piece.start <= size * stripe // source.nstripes < piece.end:
                continue
"""
_READ = """            with _reading(path):
                table = source.read_stripe(stripe, columns)
"""


class _Files(OrcFiles):
    name = _NAME


def _fault(name: str, refused_by: str, text: str, other: str) -> Fault:
    return Fault(name, refused_by, ((_FILE, text, other),))


_EVERY_PAIR = "every_pair_is_read_once_whatever_the_ranges"
_NULLS = "nulls_are_refused_or_dropped"
_LISTS = "nulls_of_lists_and_in_lists_are_refused_or_dropped"
_DAMAGE = "behind_damage_no_row_is_lost_without_a_word"
_CUT = "a_file_that_is_cut_off"
_ROWS = "it_says_how_many_rows_it_reads"
_TYPES = "a_file_of_other_types_is_refused"
_UTF_8 = "what_is_no_utf_8_is_a_bad_row"

MATRIX = Matrix(
    of="a format: ORC",
    package=Path(formats.__file__).with_name(_FILE),
    entries=f"[{plugins.FORMATS}]\n{_NAME} = orc:Orc\n",
    checks=lambda: checks(_Files()),
    faults=(
        _fault("files are split, and each range reads all", _EVERY_PAIR, _RANGE, ""),
        _fault(
            "the last stripe is left out", _EVERY_PAIR, "range(source.nstripes)", "range(source.nstripes - 1)"
        ),
        _fault(
            "the last stripe is left out where a file is split",
            _EVERY_PAIR,
            "range(source.nstripes)",
            "range(source.nstripes - (piece.start > 0))",
        ),
        _fault(
            "a stripe at the border of two ranges is read by both",
            _EVERY_PAIR,
            "< piece.end:",
            "<= piece.end:",
        ),
        _fault(
            "users and items are swapped", _EVERY_PAIR, "column_at(table, name) for", "table.column(0) for"
        ),
        _fault("the number of rows is wrong", _ROWS, "rows=source.nrows", "rows=source.nrows // 2"),
        _fault(
            "the number of rows is not passed on", _ROWS, "        counts.state(piece, source.nrows)\n", ""
        ),
        _fault(
            "nulls become the string None",
            _NULLS,
            _READ,
            _READ
            + """            texts = [
                pa.array(map(str, c.to_pylist())) if pa.types.is_string(c.type) else c for c in table.columns
            ]
            table = pa.RecordBatch.from_arrays(texts, table.schema.names)
""",
        ),
        _fault(
            "lists that are null become empty ones",
            _LISTS,
            "[column_at(table, name) for name in spec.item_columns]",
            """[
                    pa.array([v or [] for v in column_at(table, name).to_pylist()], table.column(name).type)
                    if spec.lists
                    else column_at(table, name)
                    for name in spec.item_columns
                ]""",
        ),
        _fault("UTF-8 is claimed and not checked", _UTF_8, "path=path)", "path=path, utf8=True)"),
        _fault(
            "the types of a second file are not checked",
            _TYPES,
            "        check_types(path, spec, schema_types(spec, source.schema, path), kinds)\n",
            "",
        ),
        _fault(
            "a damaged stripe is passed over",
            _DAMAGE,
            _READ,
            """            try:
                table = source.read_stripe(stripe, columns)
            except (pa.ArrowException, OSError, ValueError):
                continue
""",
        ),
        _fault(
            "a message quotes the library",
            _CUT,
            """    except (pa.ArrowException, OSError, ValueError):
        raise DataError(f"{path}: damaged""",
            """    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{path}: {error}, damaged""",
        ),
    ),
)
