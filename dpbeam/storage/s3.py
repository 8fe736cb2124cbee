"""Files on S3 and on stores that speak its protocol.

Credentials come from the environment, or from where boto3 looks for them (a profile, the role of the machine), and from
nowhere else: what is given to Beam as a flag is kept and shown by the engine. Of Beam's flags `--s3_endpoint_url`,
`--s3_region_name`, `--s3_verify` and `--s3_disable_ssl` count, and reach the workers with the job.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import Any

from dpbeam.storage.cloud import CloudFiles


class S3Files(CloudFiles):
    """Objects by `s3://bucket/key`."""

    scheme, title = "s3", "S3"
    extra, settings = "s3", "AWS_"
    own_flags = ("s3_endpoint_url", "s3_region_name", "s3_verify", "s3_disable_ssl")
    copied_at_once = 5 << 30
    credentials = "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"

    @property
    def attempts(self) -> int:
        with contextlib.suppress(ValueError):
            return max(1, int(os.environ.get("AWS_MAX_ATTEMPTS", "")))
        return super().attempts

    def client(self, *bucket: str) -> Any:
        from obstore.store import S3Store

        endpoint, region, verify, plain = (self.flags.get(name) for name in self.own_flags)
        endpoint = endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        if endpoint and plain:
            endpoint = f"http://{endpoint.partition('://')[2]}"
        more: dict[str, Any] = {}
        if verify in (False, "False", "false"):
            more["allow_invalid_certificates"] = True
        elif isinstance(verify, str) and verify not in ("True", "true"):
            more["root_certificate"] = Path(verify).read_bytes()
        settings = self.options(endpoint, **more)
        if endpoint:
            settings["endpoint"] = endpoint
        if region := region or os.environ.get("AWS_DEFAULT_REGION"):
            settings["region"] = region
        if "AWS_ACCESS_KEY_ID" not in os.environ:
            settings["credential_provider"] = self._others()
        return S3Store(bucket[0], **settings)

    def _others(self) -> Any:
        """Credentials that are not in the environment. Raises PermissionError where there are none."""
        from botocore.exceptions import BotoCoreError
        from obstore.auth.boto3 import Boto3CredentialProvider

        try:
            return Boto3CredentialProvider()
        except (BotoCoreError, ValueError):
            raise PermissionError(errno.EACCES, f"no credentials: {self.credentials}") from None
