"""What the ledger says of the code that ran."""

import os
import subprocess

from dpbeam.accounting import versions
from dpbeam.accounting.versions import MODIFIED, code_revision


def test_the_index_of_a_checkout_is_read_and_never_written(tmp_path, monkeypatch):
    """Its lock would stop whoever works there at that moment."""
    module = tmp_path / "dpbeam" / "accounting" / "versions.py"
    module.parent.mkdir(parents=True)
    module.write_text("one\n")

    def git(*arguments):
        named = ["-c", "user.name=a", "-c", "user.email=a@b"]
        done = subprocess.run(["git", *named, *arguments], cwd=tmp_path, check=True, capture_output=True)
        return done.stdout.decode().strip()

    git("init")
    git("add", ".")
    git("commit", "-m", "one")
    monkeypatch.setattr(versions, "__file__", str(module))
    os.utime(module, (1, 1))  # the index no longer knows whether it has changed
    index = (tmp_path / ".git" / "index").read_bytes()
    assert code_revision.__wrapped__() == git("rev-parse", "HEAD")
    assert (tmp_path / ".git" / "index").read_bytes() == index
    module.write_text("two\n")
    assert code_revision.__wrapped__() == git("rev-parse", "HEAD") + MODIFIED
