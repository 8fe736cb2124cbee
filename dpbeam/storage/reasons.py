"""Why a file cannot be had, in a few words for the person who can fix it."""

from __future__ import annotations

import errno
import importlib
import importlib.util

from dpbeam.errors import InputError, UnavailableError
from dpbeam.storage.files import UNAVAILABLE
from dpbeam.storage.filesystems import ELSEWHERE, FileSystems

# Package that reads a scheme, and a module by which to tell that it is installed.
_CLIENT_OF = {
    "s3": ("dpbeam[s3]", "obstore"),
    "gs": ("dpbeam[gcs]", "obstore"),
    **dict.fromkeys(("az", "abfs", "abfss"), ("dpbeam[azure]", "obstore")),
    "hdfs": ("dpbeam[hdfs]", "hdfs"),
}


def reason(error: BaseException, path: str | None = None) -> str:
    """The cause of an I/O error in a few words; for a path whose filesystem is missing, what brings it."""
    if path is not None and (missing := missing_filesystem(path)):
        return missing
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def is_passing(error: BaseException) -> bool:
    """Whether a store does not answer, or has no room, now and may do so a minute later."""
    return getattr(error, "errno", None) in (UNAVAILABLE, errno.ENOSPC, errno.EDQUOT)


def refusal(kind: type[InputError], message: str, error: BaseException) -> InputError | UnavailableError:
    """What to raise for an I/O error that the message tells: it says whether the same command may go well later."""
    return UnavailableError(message) if is_passing(error) else kind(message)


def missing_filesystem(path: str) -> str | None:
    """Why a path's filesystem cannot be reached at all, or None if it can."""
    scheme = (FileSystems.get_scheme(path) or "").lower()
    if not scheme:
        return None
    if scheme not in _CLIENT_OF:
        known = importlib.import_module(ELSEWHERE).known_schemes()
        if scheme in known:
            return None
        names = ", ".join(f"{name}://" for name in sorted(known | set(_CLIENT_OF)))
        return f"no filesystem is known for {scheme}://, only {names}, file:// and plain paths"
    package, module = _CLIENT_OF[scheme]
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        spec = None
    return None if spec else f"{scheme}:// needs the package {package}; install it"
