"""The one exception for mistakes that a user can correct."""

from __future__ import annotations

import re

LONGEST = 4000  # characters of a message; what somebody else wrote may be in it
_LINE_BREAKS = re.compile(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")


class UsageError(Exception):
    """A user's mistake in one line: what was asked, what was found, what to do.

    The command line prints the text without a traceback and exits with 1.
    """

    def __init__(self, message: str) -> None:
        line = _LINE_BREAKS.sub(" ", message)
        super().__init__(line if len(line) <= LONGEST else f"{line[:LONGEST]} ...")
