"""Files on Google Cloud Storage.

Credentials are those of `gcloud`: a file that the environment names, a login, or the role of the machine.
"""

from __future__ import annotations

import errno
import os
from typing import Any

from dpbeam.storage.cloud import CloudFiles


class GoogleFiles(CloudFiles):
    """Objects by `gs://bucket/name`."""

    extra, settings = "gcs", "GOOGLE_"
    copied_at_once = 5 << 30
    credentials = "set GOOGLE_APPLICATION_CREDENTIALS, or log in with gcloud"

    def parts(self, url: str) -> tuple[tuple[str, ...], str]:
        bucket, _, key = url.removeprefix("gs://").partition("/")
        if not url.startswith("gs://") or not bucket or "@" in bucket:
            raise OSError(errno.EINVAL, "a path on Google Cloud Storage is gs://BUCKET/NAME")
        return (bucket,), key

    def client(self, *bucket: str) -> Any:
        from obstore.store import GCSStore

        return GCSStore(bucket[0], **self.options(os.environ.get("GOOGLE_BASE_URL")))
