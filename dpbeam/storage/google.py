"""Files on Google Cloud Storage.

Credentials are those of `gcloud`: a file that the environment names, a login, or the role of the machine.
"""

from __future__ import annotations

import os
from typing import Any

from dpbeam.storage.cloud import CloudFiles


class GoogleFiles(CloudFiles):
    """Objects by `gs://bucket/name`."""

    scheme, title = "gs", "Google Cloud Storage"
    extra, settings = "gcs", "GOOGLE_"
    copied_at_once = 5 << 30
    credentials = "set GOOGLE_APPLICATION_CREDENTIALS, or log in with gcloud"

    def client(self, *bucket: str) -> Any:
        from obstore.store import GCSStore

        return GCSStore(bucket[0], **self.options(os.environ.get("GOOGLE_BASE_URL")))
