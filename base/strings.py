"""Strings that somebody else wrote: what every model accepts of them, how they are shown, and what is private in them.

A record, a study or a table may come from anybody. Its names become paths, its texts lines of a terminal or a page and
cells of a table. So each string of a model is a `Name`, a `Text`, or one of a few known words (`tests/base/
test_strings.py` looks at all models); what is made of them needs no further care.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypeVar, cast

from pydantic import AfterValidator

LONGEST_NAME = 120
T = TypeVar("T")
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._@+-]{{0,{LONGEST_NAME - 1}}}")
# Control characters but for new lines and tabs, halves of characters, and what is not seen, such as letters without a
# width, or changes the direction of what is: https://www.unicode.org/reports/tr36/#Bidirectional_Text_Spoofing.
_HIDDEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u2800\u3164\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U000e0000-\U000e0fff"
)
_HIDDEN_PATTERN = re.compile(f"[{_HIDDEN}]")
USER_VARIABLES = ("USER", "LOGNAME")
# Names of variables with secrets: words, so that no MPI's PASSIVE or KEEPALIVE counts.
SECRET = re.compile(
    r"(?:^|_)(?:(?:API|AUTH|ACCESS)?TOKEN|(?:API|ACCESS|SSH)?KEY|SECRET|PASS(?:WORD|WD|PHRASE|CODE)?|PWD?|CRED|CREDENTIAL"
    r"|O?AUTH|BEARER|COOKIE|JWT|PAT)S?(?:_|$)",
    re.IGNORECASE,
)
CHECKOUT = str(Path(__file__).resolve().parents[1])  # or where dlscale is installed
_USER_OF_URL = re.compile(r"(?<=://)[^/@\s]+@")  # https://name:password@host


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


def redact(value: T) -> T:
    """`value` without the user's home folder and name, the working folder, the checkout's, and passwords in URLs.

    So it is with every string in lists and dictionaries.
    """
    if isinstance(value, dict):
        return cast("T", {name: redact(item) for name, item in value.items()})
    if isinstance(value, list):
        return cast("T", [redact(item) for item in value])
    if not isinstance(value, str):
        return value
    text = _USER_OF_URL.sub("", value)
    # In containers some users have neither HOME nor an entry in the password file: then it stays "~".
    home, folders = os.path.expanduser("~"), {CHECKOUT: "<checkout>", str(Path.cwd()): "."}
    for folder in sorted(folders.keys() - {"/"}, key=len, reverse=True):
        text = re.sub(rf"{re.escape(folder)}(?![\w-])", folders[folder], text)
    text = text.replace(f"{home}/", "~/")
    names = {Path(home).name, *(os.environ.get(name, "") for name in USER_VARIABLES)} - {"", "~", "root"}
    for user in sorted(names, key=len, reverse=True):
        # A name only where no letter or digit adjoins it: "ted" is in "interrupted" too.
        pattern = rf"(?<![A-Za-z0-9]){re.escape(user)}(?![A-Za-z0-9])"
        # Earlier redactions stay as they are, also for a user whose name is "user".
        text = "<user>".join(re.sub(pattern, "<user>", piece) for piece in text.split("<user>"))
    return cast("T", text)
