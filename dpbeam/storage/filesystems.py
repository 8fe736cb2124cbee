"""The front of all files, by the schemes of their paths. Needs no Beam for those of this machine."""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, cast

from dpbeam.storage.files import PLAIN, Files, NewFile, Put
from dpbeam.storage.local import LocalFiles

#: The module of files elsewhere, which imports Beam.
ELSEWHERE = "dpbeam.storage.elsewhere"
_SCHEME = re.compile(r"\s*([a-zA-Z][-a-zA-Z0-9+.]*)://")
_LOCAL = LocalFiles()


class FileSystems:
    """`dpbeam.storage.files.Files` of whatever place a path names. Whatever goes wrong with a file is an OSError."""

    @staticmethod
    def set_options(pipeline_options: Any) -> None:
        """Let stores know their flags; a pipeline that is made does so again."""
        importlib.import_module(ELSEWHERE).set_options(pipeline_options)

    @staticmethod
    def get_scheme(path: str) -> str | None:
        """As in a URL; None on this machine."""
        matched = _SCHEME.match(path)
        return matched and matched[1]

    @staticmethod
    def at(path: str) -> Files:
        """What a path is read and written by. Raises OSError if there is nothing."""
        if FileSystems.get_scheme(path) is None:
            return _LOCAL
        return cast(Files, importlib.import_module(ELSEWHERE).files_at(path))

    @staticmethod
    def join(basepath: str, *paths: str) -> str:
        return FileSystems.at(basepath).join(basepath, *paths)

    @staticmethod
    def split(path: str) -> tuple[str, str]:
        return FileSystems.at(path).split(path)

    @staticmethod
    def make_folder(path: str, *, private: bool = False) -> None:
        FileSystems.at(path).make_folder(path, private=private)

    @staticmethod
    def put(path: str, how: Put = PLAIN) -> NewFile:
        return FileSystems.at(path).put(path, how)

    @staticmethod
    def put_once(
        path: str, data: bytes, *, make_folder: bool = False, private: bool = True, durable: bool = True
    ) -> bool:
        files = FileSystems.at(path)
        return files.put_once(path, data, make_folder=make_folder, private=private, durable=durable)

    @staticmethod
    def open(path: str) -> BinaryIO:
        return FileSystems.at(path).open(path)

    @staticmethod
    def read(path: str) -> bytes:
        return FileSystems.at(path).read(path)

    @staticmethod
    def read_range(path: str, offset: int, size: int) -> bytes:
        return FileSystems.at(path).read_range(path, offset, size)

    @staticmethod
    def exists(path: str) -> bool:
        return FileSystems.at(path).exists(path)

    @staticmethod
    def checksum(path: str) -> str:
        """What a store says of the content of a file."""
        return str(cast(Any, FileSystems.at(path)).checksum(path))

    @staticmethod
    def list_prefix(prefix: str) -> list[str]:
        return FileSystems.at(prefix).list_prefix(prefix)

    @staticmethod
    def sizes(prefix: str) -> dict[str, int]:
        return FileSystems.at(prefix).sizes(prefix)

    @staticmethod
    def match(pattern: str, limit: int | None = None) -> dict[str, int]:
        return FileSystems.at(pattern).match(pattern, limit)

    @staticmethod
    def folders(parent: str, stem: str, file: str) -> list[str]:
        return FileSystems.at(parent).folders(parent, stem, file)

    @staticmethod
    def rename(source: str, target: str) -> None:
        FileSystems.at(source).rename(source, target)

    @staticmethod
    def delete(paths: Sequence[str]) -> None:
        if paths:
            FileSystems.at(paths[0]).delete(paths)

    @staticmethod
    def remove_folder(path: str, *, first: str = "", last: str = "") -> str | None:
        return FileSystems.at(path).remove_folder(path, first=first, last=last)

    @staticmethod
    def protect(path: str) -> None:
        FileSystems.at(path).protect(path)

    @staticmethod
    def flush(folder: str, *, inside: bool = False, above: bool = False) -> None:
        FileSystems.at(folder).flush(folder, inside=inside, above=above)

    @staticmethod
    def alone(path: str) -> AbstractContextManager[None]:
        return FileSystems.at(path).alone(path)
