"""Strings that somebody else wrote: what every model accepts of them, and how they are shown and written.

A record, a study or a table may come from anybody. Its names become paths, its texts lines of a terminal or a page and
cells of a table. So each string of a model is a `Name`, a `Text`, or one of a few known words (`tests/base/
test_strings.py` looks at all models); what is made of them needs no further care.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator

LONGEST_NAME = 120
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._@+-]{{0,{LONGEST_NAME - 1}}}")
# Control characters but for new lines and tabs, halves of characters, and what is not seen, such as letters without a
# width, or changes the direction of what is: https://www.unicode.org/reports/tr36/#Bidirectional_Text_Spoofing.
_HIDDEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u2800\u3164\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U000e0000-\U000e0fff"
)
_HIDDEN_PATTERN = re.compile(f"[{_HIDDEN}]")


def plural(count: float, noun: str) -> str:
    """`1 rank`, `8 ranks`, `2 launches`."""
    return f"{count:g} {noun}{'' if count == 1 else 'es' if noun.endswith('ch') else 's'}"


def visible(text: str) -> str:
    r"""`text` with each hidden character as its Python escape: `\x1b`, `\u202e`. New lines and tabs stay."""
    return text if text.isascii() and text.isprintable() else _HIDDEN_PATTERN.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def check_name(value: str) -> str:
    """Returns `value` if it is a name, which can be a part of a path and of no other folder. Raises ValueError."""
    if not _NAME.fullmatch(value):
        raise ValueError(
            f"{value[:80]!r} cannot name a folder; give up to {LONGEST_NAME} letters, digits, '.', '_', '-', '+' and "
            "'@', a letter or digit first"
        )
    return value


Name = Annotated[str, AfterValidator(check_name)]
Text = Annotated[str, AfterValidator(visible)]


def _moment(value: str) -> str:
    try:
        datetime.fromisoformat(value).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"{value[:80]!r} is no date and time; write 2026-11-22T21:31:23+00:00") from None
    return value


Moment = Annotated[str, AfterValidator(_moment)]  # ISO 8601
