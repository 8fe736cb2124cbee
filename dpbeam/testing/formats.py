"""What a format of somebody's own must do, as tests to inherit (docs/how-to/add_a_format.md)."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
import shutil
import tempfile
import weakref
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dpbeam.errors import InputError
from dpbeam.io import formats
from dpbeam.io.formats.base import Format, Piece
from dpbeam.io.readers import WorkUnit, read_complete, read_scattered
from dpbeam.io.rows import Counts, RowsError
from dpbeam.io.sources import plan_units, preflight
from dpbeam.io.spec import InputSpec
from dpbeam.kernels import canonical
from dpbeam.kernels.canonical import Kinds
from dpbeam.kernels.pair_rules import BAD_ROWS, EMPTY_ITEMS, NULL_ROWS

#: A user or an item of a file; bytes stand for a string that is no UTF-8.
Value = str | int | bytes | None

Pair = tuple[Value, Value]
User = Sequence[Value] | None

_PAIRS: list[Pair] = [(f"u{n % 60}", f"i{n * n % 41}") for n in range(150)]
_USERS: list[User] = [[f"w{n % 7}", f"x{n}"] for n in range(150)]
_ITEMS = [sorted(map(str, items or ())) for items in _USERS]
_SORTED = sorted(_ITEMS)
_FEW: list[Pair] = [(f"u{n}", f"i{n}") for n in range(12)]
_BAD = 4  # the place of a bad row among them
_SPLITS = (None, 900, 17)  # bytes of a range
_NOT_UTF_8 = b"\xff\xfe\xff"
_PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda data: pa.compress(data, codec="zstd", asbytes=True),
}
_Read = tuple[Any, dict[str, int]]


def read_input(spec: InputSpec, split: int | None = None, target: int = 1_000_000) -> _Read:
    """Everything that a spec reads, and the counts of what was dropped.

    Args:
      split: bytes per unit of work; target: pairs per block of complete users.

    Returns:
      Scattered input as a Counter of (user, item); complete input as a list of each user's sorted items, in order of
      users within blocks.

    Raises:
      InputError: as a run raises it.
    """
    summary = preflight(spec)
    spec, counts = summary.spec or spec, Counts()
    pairs: Counter[tuple[Any, Any]] = Counter()
    users: list[list[Any]] = []
    for unit in plan_units(summary.files, spec, split):
        if spec.complete_users:
            for _, batch in read_complete(unit, spec, summary.kinds, counts, target):
                items = _decoded(batch.column("item"), summary.kinds.item)
                owners = batch.column("user").to_pylist()
                assert owners == sorted(owners), "the users of a block are not in order"
                by_user: dict[int, list[Any]] = {owner: [] for owner in owners}
                for owner, item in zip(owners, items):
                    by_user[owner].append(item)
                users += map(sorted, by_user.values())
        else:
            for batch in read_scattered(unit, spec, summary.kinds, counts):
                kinds = Kinds.of(batch.schema)
                names = canonical.plain(batch.column("user"))
                assert names.type == pa.large_binary(), f"users come as {names.type}"
                pairs.update(
                    zip(
                        _decoded(names, [kinds.user or canonical.STRING]),
                        _decoded(batch.column("item"), kinds.item),
                    )
                )
    counts.check_read("--input")
    return (users if spec.complete_users else pairs), {k: v for k, v in counts.items() if v}


def _decoded(array: pa.Array, kinds: Sequence[str]) -> list[Any]:
    columns = [column.to_pylist() for column in canonical.decode(canonical.plain(array), kinds)]
    return columns[0] if len(columns) == 1 else list(zip(*columns))


class FormatContract:
    """Tests of a format, for pytest: a class that inherits them says how its files are written.

    Attributes:
      name: of the format, registered or installed.
      options: of the `InputSpec` that reads what `users` writes; by default lists in a column `items`.
    """

    name: str
    options: Mapping[str, Any] = {"layout": "grouped", "item_columns": ["items"]}

    def pairs(self, rows: Sequence[Pair]) -> bytes:
        """A file of columns `user` and `item`; asked for where the format has columns.

        Args:
          rows: (user, item). Of a column all values but None are strings, bytes among them, or all are integers. Bytes
            are to be written as they are into a column of strings. What has no null writes None as nothing.
        """
        raise NotImplementedError(f"{self.name} has columns")

    @abstractmethod
    def users(self, rows: Sequence[User]) -> bytes:
        """A file whose rows are users: a list of items each, or where there are no lists a text of words.

        Args:
          rows: the items of each user; None and lists that hold None only where the format has lists.
        """

    def test_every_pair_is_read_once_whatever_the_ranges(self) -> None:
        if self._format.has_columns:
            for split in _SPLITS:
                read = read_input(self._pairs(_PAIRS), split)
                assert read == (Counter(_PAIRS), {}), f"ranges of {split} bytes: rows are lost or come twice"

    def test_every_row_that_is_a_user_counts_once_whatever_the_ranges(self) -> None:
        """A row that two workers read would be two users."""
        spec = self._users()
        assert spec.complete_users, "its rows are no users"
        for split in _SPLITS:
            users, counts = read_input(spec, split)
            assert sorted(users) == _SORTED and not counts, f"ranges of {split} bytes: other users are read"

    def test_it_says_how_many_rows_it_reads(self) -> None:
        if not self._format.has_columns:
            return
        spec, counts = self._pairs(_PAIRS), Counts()
        piece = _whole(spec)
        rows = list(self._format.read_pieces([piece], spec, preflight(spec).kinds, counts))
        assert sum(map(len, rows)) == len(_PAIRS)
        stated = self._format.look(piece, spec).rows
        assert stated in (None, len(_PAIRS)), "`look` says another number of rows than are read"
        assert counts.stated == stated, "`read` hands `counts.state` another number of rows than `look` says"
        assert self._format.count_rows(piece.path, spec) == len(_PAIRS), "`count_rows` counts other rows"

    def test_nulls_are_refused_or_dropped(self) -> None:
        if self._format.has_columns:
            for bad in _bad(None):
                _refused_row(self._pairs(_with(bad)), "null in column|empty item in column")
                pairs, counts = read_input(self._pairs(_with(bad), on_null="drop"), 17)
                assert pairs == Counter(_FEW), f"{bad} is not dropped"
                assert counts in ({NULL_ROWS: 1}, {EMPTY_ITEMS: 1}), f"{bad} is counted as {counts}"

    def test_nulls_of_lists_and_in_lists_are_refused_or_dropped(self) -> None:
        if not self._format.has_lists:
            return
        for bad in (None, ["b", None]):
            _refused_row(self._users([*[["a"]] * _BAD, bad, ["c"]]), "null in column")
        users, counts = read_input(self._users([["a"], None, ["b", None, "c"], []], on_null="drop"))
        assert users == [["a"], ["b", "c"]] and counts == {NULL_ROWS: 2}, (
            "nulls of lists are taken for something else"
        )

    def test_what_is_no_utf_8_is_a_bad_row(self) -> None:
        if self._format.has_columns:
            for bad in _bad(_NOT_UTF_8):
                _refused_row(self._pairs(_with(bad)), "not valid UTF-8")
                read = read_input(self._pairs(_with(bad), on_bad_row="skip"), 17)
                assert read == (Counter(_FEW), {BAD_ROWS: 1}), f"{bad} is no bad row"

    def test_a_file_of_other_types_is_refused(self) -> None:
        """By the launcher where it looks at the file, else by the worker."""
        if not self._format.declares_types:
            return
        for other in _bad(7):
            spec, second = self._pairs(_PAIRS), self._write(self.pairs([other]), "b")
            _refusal(read_input, self._spec([*spec.patterns, second], pairs=True))
            unit = WorkUnit((Piece(second, 0, os.path.getsize(second)),))
            _refusal(list, read_scattered(unit, spec, preflight(spec).kinds, Counts()))

    def test_a_file_without_a_byte(self) -> None:
        spec = self._users(b"")
        if self._format.lacks:
            assert _refusal(read_input, spec) == (
                f"{spec.patterns[0]}: an empty file, without even a {self._format.lacks}; remove it, or leave it out "
                "of --input"
            )
        else:
            assert not read_input(spec)[0]

    def test_compressed_files_are_read_whole_or_refused(self) -> None:
        data = self.users(_USERS)
        for suffix, pack in _PACK.items():
            half = len(data) // 2
            whole = pack(data[:half]) + pack(data[half:])  # members, one after the other
            spec = self._users(whole, suffix)
            if not self._format.compressible:
                assert _refusal(read_input, spec).endswith("decompress the file itself")
                continue
            assert sorted(read_input(spec, 100)[0]) == _SORTED, f"of .{suffix} other rows are read"
            for cut in (1, 9, len(whole) // 3):
                spec = self._users(whole[:-cut], suffix)
                assert _refusal(read_input, spec).startswith(f"{spec.patterns[0]}: not a whole ")

    def test_a_file_that_is_cut_off(self) -> None:
        """It is refused, or its rows are the first ones: where a line or record ends, nobody can tell. The last one may
        be cut where the format has no end marks, and counts as the user that it is."""
        data, refused = self.users(_USERS), 0
        for cut in np.linspace(1, len(data) - 1, 15).astype(int):
            read = _read_or_refused(self._users(data[: -int(cut)]))
            refused += read is None
            users = read[0] if read else []
            assert users[:-1] == _ITEMS[: max(len(users) - 1, 0)], (
                "of a file that is cut off other rows are read"
            )
        assert refused >= (12 if self._format.magic else 0), "a file without its end is read"

    def test_behind_damage_no_row_is_lost_without_a_word(self) -> None:
        data = self.users(_USERS)
        for number, start in enumerate(np.linspace(len(self._format.magic), len(data) - 33, 15).astype(int)):
            damaged = data[:start] + np.random.default_rng(start).bytes(32) + data[start + 32 :]
            on_bad_row = ("skip", "error")[number % 2]
            read = _read_or_refused(self._users(damaged, on_bad_row=on_bad_row, on_null="drop"), 300)
            # Lines may run together, pages become records of another kind; rows of columns are there or bad.
            if read is not None and self._format.magic and self._format.has_columns:
                rows = len(read[0]) + sum(read[1].values())
                assert rows >= len(_USERS), (
                    f"bytes {start} to {start + 32} are damaged, and rows are passed over"
                )

    def test_hostile_bytes_are_refused_or_read_and_nothing_else(self) -> None:
        generator = np.random.default_rng(8)
        data = self.users(_USERS[:40])
        for number in range(30):
            mutated = np.frombuffer(data, np.uint8).copy()
            at = generator.integers(0, len(mutated), 6)
            mutated[at] = generator.choice(np.array([0, 10, 13, 34, 255, 128, 44, 9], np.uint8), 6)
            on_bad_row = ("error", "skip")[number % 2]
            read = _read_or_refused(
                self._users(mutated.tobytes(), on_bad_row=on_bad_row, on_null="drop"), 300
            )
            assert read is None or len(read[0]) <= 80, "more users are read than the file can have"

    def test_lines_that_end_with_carriage_returns_are_never_one_line(self) -> None:
        """1,000 users were one line, hence none: exit code 0, budget spent."""
        if self._format.magic:
            return
        data = self.users(_USERS)
        spec = self._users(data.replace(b"\n", b"\r"), on_bad_row="skip")
        assert _refusal(read_input, spec) == (
            f"{spec.patterns[0]}: its lines end with carriage returns alone; convert them to newlines, as "
            "tr '\\r' '\\n' does"
        )
        assert sorted(read_input(self._users(data.replace(b"\n", b"\r\n")))[0]) == _SORTED

    def test_utf_16_is_named(self) -> None:
        if self._format.magic:
            return
        for coding in ("utf-16", "utf-16-le", "utf-16-be"):
            spec = self._users(self.users(_USERS).decode().encode(coding), on_bad_row="skip")
            said = _refusal(read_input, spec)
            assert said == f"{spec.patterns[0]}: is text in UTF-16; convert it to UTF-8"

    @property
    def _format(self) -> Format:
        return formats.find(self.name)

    def _spec(self, patterns: Sequence[str], *, pairs: bool = False, **more: Any) -> InputSpec:
        options = {"user_column": "user", "item_columns": ["item"]} if pairs else self.options
        return InputSpec.create(patterns, format=self.name, **{**options, **more})

    def _write(self, data: bytes, stem: str = "a", compressed: str = "") -> str:
        """The path of a new file, which goes with this object."""
        folder = tempfile.mkdtemp()
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        path = os.path.join(folder, ".".join(filter(None, [stem, *self._format.suffixes[:1], compressed])))
        with open(path, "wb") as file:
            file.write(data)
        return path

    def _pairs(self, rows: Sequence[Pair], **more: Any) -> InputSpec:
        return self._spec([self._write(self.pairs(rows))], pairs=True, **more)

    def _users(self, rows: bytes | Sequence[User] = _USERS, compressed: str = "", **more: Any) -> InputSpec:
        data = rows if isinstance(rows, bytes) else self.users(rows)
        return self._spec([self._write(data, compressed=compressed)], **more)


def _whole(spec: InputSpec) -> Piece:
    (path,) = spec.patterns
    return Piece(path, 0, os.path.getsize(path))


def _bad(value: Value) -> tuple[Pair, Pair]:
    return (value, "i"), ("u", value)


def _with(bad: Pair) -> list[Pair]:
    return [*_FEW[:_BAD], bad, *_FEW[_BAD:]]


def _refusal(read: Callable[..., object], *arguments: object) -> str:
    """What reading is refused with."""
    try:
        read(*arguments)
    except InputError as error:
        return _said(error)
    raise AssertionError("it is not refused")


def _said(error: InputError) -> str:
    """Its message; holds that it is one line without a value, and that the format itself saw what is wrong."""
    said = str(error)
    assert not isinstance(error, RowsError), f"only the number of rows tells that something is wrong: {said}"
    assert "\n" not in said and not re.search(r"\b[wx]\d+\b", said), (
        f"the message shows what users hold: {said}"
    )
    return said


def _refused_row(spec: InputSpec, problem: str) -> None:
    """Holds that a bad row is refused by its number, counted with a header or without."""
    said = _refusal(read_input, spec).removeprefix(spec.patterns[0])
    assert re.search(problem, said) and re.match(rf":.*\b({_BAD + 1}|{_BAD + 2})\b", said), (
        f"a message that names the row and its fault ({problem}) is expected, not {said}"
    )


def _read_or_refused(spec: InputSpec, split: int | None = None) -> _Read | None:
    try:
        return read_input(spec, split)
    except InputError as error:
        said, cause = _said(error), str(error.__context__ or "")
        assert not cause or cause not in said, (
            f"the message quotes a library, which may quote the data: {said}"
        )
        return None
