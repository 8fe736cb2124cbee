"""What makes two commands the same run: for a release id that is given again, and for a checkpoint to go on from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

#: Flags that change nothing of what is released, or only how a run is done. Any other flag is part of what a run is.
OPERATIONAL = (
    *("quiet", "verbose", "config", "dry_run", "overwrite", "result_file", "not_private_counts"),
    *("checkpoint", "passes_per_job", "num_shards", "users_at_least", "budget", "charge_test_key"),
    *("encrypt_intermediates", "allow_empty", "untested_runner"),
)


def settings_digest(command: str, said: Mapping[str, Any], prefix: str) -> str:
    """Digest of the command, of every flag that says what is released from what, and of the output's prefix."""
    flags = {name: value for name, value in said.items() if name not in (*OPERATIONAL, "output", "set")}
    flags |= said.get("set", {})  # constants of a method were flags once: accounts hold digests of that form
    text = json.dumps([command, prefix, flags], sort_keys=True, default=list)
    return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()
