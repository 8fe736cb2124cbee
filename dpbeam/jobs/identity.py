"""What makes two commands the same run: for a release id that is given again, and for a checkpoint to go on from."""

from __future__ import annotations

import hashlib
import json

from dpbeam.jobs.options import Options


def settings_digest(command: str, options: Options, prefix: str) -> str:
    """Digest of the command, of every flag that says what is released from what, and of the output's prefix."""
    flags = options.identifying
    flags |= flags.pop("set", {})  # constants of a method were flags once: accounts hold digests of that form
    text = json.dumps([command, prefix, flags], sort_keys=True, default=list)
    return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()
