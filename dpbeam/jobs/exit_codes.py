"""How a command ends, and what whoever started it should do then: the one table of it.

An orchestrator needs to know of a failure whether to try again. Hence the line between 1 and 2: what the same command
may meet otherwise a minute later is 1, also another run of the same release that is still under way; what stays
refused until somebody changes something is 2, also a budget that is used up.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The code, what it means, and whether the same command should be given again.

    docs/reference/cli.md has this table.
    """

    meaning: str
    again: str

    def __new__(cls, code: int, meaning: str, again: str) -> ExitCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        member.again = again
        return member

    DONE = (
        0,
        "done: the output is in place, and the ledger, which is its mark; or the release was out already",
        "no need: without an account it would be refused, or with --overwrite spend the budget again",
    )
    FAILED = (
        1,
        "failed, or interrupted, or another run of the same release is still under way: no output, and no private "
        "files but those that --checkpoint keeps",
        "yes, after a while: with an account it is paid once",
    )
    REFUSED = (
        2,
        "wrong usage or input, or too little budget: one line that names the flag, file, column or value; no output",
        "no: the answer stays the same until somebody changes something",
    )
