"""Removes private parts of recorded text: home folder, user name, working folder, the checkout's folder."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

# Names of variables with secrets: words, so that no MPI's PASSIVE or KEEPALIVE counts.
SECRET = re.compile(
    r"(?:^|_)(?:(?:API|AUTH|ACCESS)?TOKEN|(?:API|ACCESS|SSH)?KEY|SECRET|PASS(?:WORD|WD|PHRASE|CODE)?|PWD?|CRED|CREDENTIAL"
    r"|O?AUTH|BEARER|COOKIE|JWT|PAT)S?(?:_|$)",
    re.IGNORECASE,
)
CHECKOUT = str(Path(__file__).resolve().parents[1])  # or where dlscale is installed
_USER_OF_URL = re.compile(r"(?<=://)[^/@\s]+@")  # https://name:password@host


def redact(text: str) -> str:
    """`text` without the user's home folder and name, the working folder, the checkout's, and passwords in URLs."""
    text = _USER_OF_URL.sub("", text)
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
    return text


def redacted(value: Any) -> Any:
    """`value` with every string in it redacted, inside lists and dictionaries too."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {name: redacted(item) for name, item in value.items()}
    return [redacted(item) for item in value] if isinstance(value, list) else value


USER_VARIABLES = ("USER", "LOGNAME")
