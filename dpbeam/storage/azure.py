"""Files on Azure Blob Storage, and on Data Lake Storage through its blobs.

The account is that of the URL, or of the environment (`AZURE_STORAGE_ACCOUNT`, `AZURE_STORAGE_CONNECTION_STRING`).
Credentials are a key or a signature of the environment, for its own account alone, or else what azure-identity finds:
the login of a machine, a pod or a person.
"""

from __future__ import annotations

import errno
import os
import re
from typing import Any

from dpbeam.storage.cloud import CloudFiles

#: Azure's own alone: tokens and signatures go to the host that a URL names.
_HOST = (
    r"[a-z0-9]+(?:\.z[0-9]+)?\.dfs\.(?:core\.windows\.net|core\.usgovcloudapi\.net|core\.chinacloudapi\.cn"
    r"|storage\.azure\.net|fabric\.microsoft\.com)"
)
_URL = re.compile(
    rf"(?P<scheme>az|abfss?)://(?P<container>[^/@:]+)(?:@(?P<host>{_HOST}))?(?:/(?P<name>.*))?", re.DOTALL
)
#: Variables with the prefix AZURE_STORAGE_, as Azure's command line reads them.
SETTINGS = ("ACCOUNT", "CONNECTION_STRING", "KEY", "SAS_TOKEN", "SERVICE_ENDPOINT")


class AzureFiles(CloudFiles):
    """Blobs by `az://container/name` and `abfss://container@account.dfs.core.windows.net/name`."""

    extra, settings = "azure", "AZURE_"
    credentials = "set AZURE_STORAGE_CONNECTION_STRING, or what azure-identity looks for"

    def parts(self, url: str) -> tuple[tuple[str, ...], str]:
        parts = _URL.fullmatch(url)
        if parts is None or (parts["host"] is None) != (parts["scheme"] == "az"):
            text = "a path on Azure is az://CONTAINER/NAME or abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/NAME"
            raise OSError(errno.EINVAL, text)
        return (parts["container"], parts["host"] or ""), parts["name"] or ""

    def remove_below(self, path: str) -> None:
        super().remove_below(path)
        for folder in self.subfolders(path):  # of a hierarchical namespace, which deletes empty ones alone
            self.remove_below(folder)
        self.delete([path.rstrip("/")])

    def client(self, *bucket: str) -> Any:
        from obstore.store import AzureStore

        container, host = bucket
        account = account_of(host)
        if not account.keys() & {"account_key", "sas_key"}:
            account["credential_provider"] = self._identity()
        return AzureStore(container, **account, **self.options(account["endpoint"]))

    def _identity(self) -> Any:
        """What azure-identity finds, when it is asked for."""
        from azure.core.exceptions import ClientAuthenticationError
        from obstore.auth.azure import AzureCredentialProvider

        found = AzureCredentialProvider()

        def ask() -> Any:
            try:
                return found()
            except ClientAuthenticationError:
                raise PermissionError(errno.EACCES, f"no credentials: {self.credentials}") from None

        return ask


def account_of(host: str) -> dict[str, Any]:
    """What a client is told of the account of a host, or where there is none of the environment's. Raises OSError."""
    own = {name: os.environ.get(f"AZURE_STORAGE_{name}") for name in SETTINGS}
    named = host.partition(".")[0]
    if text := own["CONNECTION_STRING"]:
        try:
            parts = dict(part.split("=", 1) for part in text.strip().rstrip(";").split(";"))
            account = parts["AccountName"]
            secret = (
                {"account_key": parts["AccountKey"]}
                if "AccountKey" in parts
                else {"sas_key": parts["SharedAccessSignature"]}
            )
        except (ValueError, KeyError):
            raise OSError(errno.EINVAL, "AZURE_STORAGE_CONNECTION_STRING is no connection string") from None
        if named not in ("", account):
            raise OSError(errno.EINVAL, "AZURE_STORAGE_CONNECTION_STRING is that of another account")
        protocol, suffix = (
            parts.get("DefaultEndpointsProtocol", "https"),
            parts.get("EndpointSuffix", "core.windows.net"),
        )
        endpoint = parts.get("BlobEndpoint", f"{protocol}://{account}.blob.{suffix}")
        return {"account_name": account, "endpoint": endpoint.rstrip("/"), **secret}
    account = named or own["ACCOUNT"] or ""
    if not account:
        text = "az:// needs an account: set AZURE_STORAGE_ACCOUNT or AZURE_STORAGE_CONNECTION_STRING"
        raise OSError(errno.EINVAL, text)
    if (own["KEY"] or own["SAS_TOKEN"]) and own["ACCOUNT"] not in (None, account):
        text = "AZURE_STORAGE_ACCOUNT, whose credentials are set, is another account"
        raise OSError(errno.EINVAL, text)
    endpoint = (
        f"https://{host.replace('.dfs.', '.blob.', 1)}"
        if host
        else own["SERVICE_ENDPOINT"] or f"https://{account}.blob.core.windows.net"
    )
    made = {"account_name": account, "endpoint": endpoint}
    if own["KEY"]:
        made["account_key"] = own["KEY"]
    elif own["SAS_TOKEN"]:
        made["sas_key"] = own["SAS_TOKEN"]
    return made
