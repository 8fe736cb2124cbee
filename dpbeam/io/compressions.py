"""How a file is compressed as a whole, by the end of its name."""

from __future__ import annotations

import re
from typing import NamedTuple

from dpbeam.errors import DataError
from dpbeam.io.paths import name_of


class Compression(NamedTuple):
    """One way to compress a file as a whole; `magic` is a pattern."""

    name: str
    suffix: str
    magic: bytes

    def begins(self, head: bytes) -> bool:
        """Whether a file of these first 16 bytes, or fewer where it has no more, is compressed so."""
        return re.match(self.magic, head, re.DOTALL) is not None


COMPRESSIONS = (
    Compression("gzip", "gz", rb"\x1f\x8b"),
    Compression("zstd", "zst", rb"\x28\xb5\x2f\xfd"),
    # Its three letters may begin a text: what follows is the size, and the first block or the end.
    Compression("bz2", "bz2", rb"BZh[1-9](?:1AY&SY|\x17\x72\x45\x38\x50\x90)"),
    Compression("xz", "xz", rb"\xfd7zXZ\0"),
)
_UNREADABLE = ("zip", "lz4", "7z", "snappy")


def compression_of(path: str) -> str | None:
    """The name of a file's compression, or None, by extension. Raises InputError for one that is not read."""
    extension = name_of(path).rpartition(".")[2].lower()
    if extension in _UNREADABLE:
        ours = ", ".join(compression.name for compression in COMPRESSIONS)
        raise DataError(
            f"{path}: .{extension} files are not read; compress with one of {ours}, or not at all"
        )
    return next((way.name for way in COMPRESSIONS if path.lower().endswith(f".{way.suffix}")), None)


def without_compression(path: str) -> str:
    """A path without the extension of a compression."""
    stem, dot, extension = path.rpartition(".")
    return stem if dot and any(extension.lower() == way.suffix for way in COMPRESSIONS) else path
