"""Removes what is private from recorded text: home folder, user name, the folder a command was given in."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any


def redact(text: str) -> str:
    """`text` without this user's home folder and name and without the folder that the command was given in."""
    home, folder = str(Path.home()), str(Path.cwd())
    if folder != "/":
        text = text.replace(folder, ".")
    text = text.replace(home + "/", "~/")
    names = {Path.home().name, *(os.environ.get(name, "") for name in USER_VARIABLES)} - {"", "root"}
    for user in sorted(names, key=len, reverse=True):
        # Two letters are also a part of many words: only between others than letters and digits they are a name.
        pattern = re.escape(user) if len(user) > 2 else rf"(?<![A-Za-z0-9]){re.escape(user)}(?![A-Za-z0-9])"
        # What was redacted before stays as it is, also for a user whose name is "user".
        text = "<user>".join(re.sub(pattern, "<user>", piece) for piece in text.split("<user>"))
    return text


def redacted(value: Any) -> Any:
    """`value` with every text in it redacted: of lists and dictionaries all that is inside."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {name: redacted(one) for name, one in value.items()}
    return [redacted(one) for one in value] if isinstance(value, list) else value


USER_VARIABLES = ("USER", "LOGNAME")
