"""What a committed output adds to its ledger: when, under which id, from which input, into which files.

Design. The rest of a ledger is a function of the settings; what is in here follows from the released output or from
what the operator typed, but for the day of the commit, which is as public as the time that a run takes
(docs/explanation/privacy.md). So two runs that release the same differ here in nothing else than `date` and
`started`, and nothing that is compared before a commit may hold this section.

As with events, what ledgers contain is kept for good: no field changes its meaning, and one that is added has a default
that says what older ledgers meant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from datetime import date, datetime
from typing import Any

_DIGEST = re.compile(r"[0-9a-f]{64}")
STARTED_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True)
class Shard:
    """One file of the output.

    Attributes:
      name: without its folder.
      rows: number of released items in it.
      sha256: of its bytes, hexadecimal.

    Both are None for files that are not released as a whole, as shares that each agent sees alone: there they would
    tell of the input.

    Raises: ValueError on a name with a folder, a negative number, or what is no digest.
    """

    name: str
    rows: int | None
    sha256: str | None

    def __post_init__(self) -> None:
        if not _is_name(self.name):
            raise ValueError("the name of a file must be a string without a folder")
        if self.rows is None and self.sha256 is None:
            return
        if type(self.rows) is not int or self.rows < 0:
            raise ValueError("rows must be an integer that is not negative")
        _check_digest("sha256", self.sha256)


@dataclass(frozen=True)
class InputDigest:
    """A keyed digest of all input files, as version 1.0 wrote it; nobody can tell anything of it without the key.

    Attributes:
      nonce: 32 random bytes of the run, hexadecimal.
      hmac_sha256: HMAC-SHA-256(k, SHA-256(file 1) || ...) of the files in the order of their paths, hexadecimal, with
        k = HMAC-SHA-256(key, "dpbeam input digest" || nonce).
    """

    nonce: str
    hmac_sha256: str

    def __post_init__(self) -> None:
        _check_digest("nonce", self.nonce)
        _check_digest("hmac_sha256", self.hmac_sha256)


@dataclass(frozen=True)
class Others:
    """How many users hold none of the items of a release, with noise.

    Attributes:
      users: a whole number, possibly negative.
      sd: standard deviation of its noise.

    Raises: ValueError on another type.
    """

    users: int
    sd: float

    def __post_init__(self) -> None:
        if type(self.users) is not int or type(self.sd) is not float or not self.sd > 0:
            raise ValueError("others must be a whole number of users and a positive deviation")


@dataclass(frozen=True)
class Release:
    """The section `release` of a ledger.

    Attributes:
      command: subcommand of dpbeam.
      started: UTC, to the second, as in 2026-01-31T02:00:00Z: when the command was given.
      date: UTC day on which the output was committed, as in 2026-01-31; empty until then.
      outputs: the files, none until they are committed.
      release_id: given by whoever ran it, or None.
      inputs: the input as the command named it, or None where it is not recorded.
      input_digest: of ledgers of version 1.0, if it was asked for.
      others: if they were asked for.

    Raises: ValueError on a value of another type or form.
    """

    command: str
    started: str
    date: str = ""
    outputs: tuple[Shard, ...] = ()
    release_id: str | None = None
    inputs: tuple[str, ...] | None = None
    input_digest: InputDigest | None = None
    others: Others | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "outputs", tuple(self.outputs))
        if self.inputs is not None:
            object.__setattr__(self, "inputs", tuple(self.inputs))
        texts = [self.command, *(self.inputs or ()), *([] if self.release_id is None else [self.release_id])]
        if not all(type(text) is str for text in texts):
            raise ValueError("command, release_id and inputs must be strings")
        if not all(type(shard) is Shard for shard in self.outputs):
            raise ValueError("outputs must be shards")
        datetime.strptime(self.started, STARTED_FORMAT)
        if self.date:
            date.fromisoformat(self.date)

    @property
    def items_released(self) -> int | None:
        """Number of rows of all files; None where they are not recorded."""
        rows = [shard.rows for shard in self.outputs if shard.rows is not None]
        return sum(rows) if len(rows) == len(self.outputs) else None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        values = asdict(self)
        values["outputs"] = [asdict(shard) for shard in self.outputs]
        values["inputs"] = None if self.inputs is None else list(self.inputs)
        if self.others is None:
            del values["others"]
        return values

    @classmethod
    def from_dict(cls, values: Any) -> Release:
        """Inverse of `to_dict`.

        Raises: ValueError unless the fields are exactly the known ones, and of their types.
        """
        values = _exactly(cls, values)
        if not isinstance(values.get("outputs", []), list) or not isinstance(
            values.get("inputs"), list | None
        ):
            raise ValueError("outputs and inputs must be lists")
        values["outputs"] = tuple(Shard(**_exactly(Shard, shard)) for shard in values.get("outputs", []))
        if values.get("input_digest") is not None:
            values["input_digest"] = InputDigest(**_exactly(InputDigest, values["input_digest"]))
        if values.get("others") is not None:
            values["others"] = Others(**_exactly(Others, values["others"]))
        return cls(**values)


def _exactly(cls: type, values: Any) -> dict[str, Any]:
    """Values by field; those with a default may be missing."""
    known = {item.name for item in fields(cls)}
    required = {item.name for item in fields(cls) if item.default is MISSING}
    if not isinstance(values, Mapping) or not required <= set(values) <= known:
        raise ValueError(f"{cls.__name__} has not exactly the fields that are known")
    return dict(values)


def as_text(name: str) -> str:
    """A file name as text that JSON can hold; bytes of a name that are no UTF-8 become question marks."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _is_name(value: Any) -> bool:
    return type(value) is str and value not in ("", ".", "..") and "/" not in value


def _check_digest(name: str, value: Any) -> None:
    if type(value) is not str or not _DIGEST.fullmatch(value):
        raise ValueError(f"{name} must be 64 hexadecimal digits")
