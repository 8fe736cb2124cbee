"""Files elsewhere, by the schemes of their paths: of S3, Google, Azure, HDFS, and of installed packages.

Those of Beam do not do: they make a client for each call, read through one stream, or cannot give up a write, and so
leave half an object where a writer fails. Options (`--s3_endpoint_url`, `--hdfs_host`, ...) come from Beam, on the
launcher and on workers.
"""

from __future__ import annotations

import errno
import functools
from typing import Any

from apache_beam.io.filesystems import FileSystems as BeamFileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.options.value_provider import RuntimeValueProvider

from dpbeam import plugins
from dpbeam.storage import azure, google, hdfs, s3
from dpbeam.storage.files import Files
from dpbeam.storage.remote import RemoteFiles

_OURS: dict[str, type[RemoteFiles]] = {
    "s3": s3.S3Files,
    "gs": google.GoogleFiles,
    "hdfs": hdfs.HdfsFiles,
    **dict.fromkeys(("az", "abfs", "abfss"), azure.AzureFiles),
}


def set_options(options: PipelineOptions | None) -> None:
    """Let filesystems know their flags."""
    BeamFileSystems.set_options(options)


def files_at(path: str) -> Files:
    """The files of a path with a scheme. Raises OSError if there are none."""
    scheme = path.strip().partition("://")[0]
    ours = _OURS.get(scheme) or _somebodys(scheme)
    if ours is None:
        raise OSError(errno.EINVAL, f"no filesystem is known for {scheme}://", path)
    options: Any = BeamFileSystems._pipeline_options or RuntimeValueProvider.runtime_options
    if isinstance(options, PipelineOptions):  # of the launcher; a worker has a dict
        options = _flags_of(options)
    return ours(options or {})


def _somebodys(scheme: str) -> type[RemoteFiles] | None:
    """The class that an installed package brings for a scheme."""
    entry = plugins.added(plugins.STORES, _OURS).get(scheme)
    files: type[RemoteFiles] | None = None if entry is None else plugins.load(entry)
    return files


@functools.lru_cache(maxsize=1)  # reading them takes longer than a request
def _flags_of(options: PipelineOptions) -> dict[str, Any]:
    """Beam's flags; those alone that were given."""
    return options.get_all_options(drop_default=True)


def known_schemes() -> set[str]:
    """Schemes that some filesystem has."""
    return {*_OURS, *plugins.added(plugins.STORES, _OURS)}
