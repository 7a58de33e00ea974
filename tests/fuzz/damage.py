"""Damages what somebody may hand over: bytes anywhere, words and numbers of a text, and values of JSON.

`damaged` is for the content of a file or an option, `damage_folder` for what a whole folder has. Both are functions of
their choices alone, so that a seed makes the same input everywhere.
"""

from __future__ import annotations

import copy
import json
import os
import random
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

NUMBERS: list[Any] = [
    0, 1, -1, 2, 3, 2**31, 2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64, 10**9, 10**15, 10**30, 10**400, True,
    False, 0.5, -0.0, 1e-320, 5e-324, 1e15, 1e16, 1e300, 1e308, -1e308, float("nan"), float("inf"), -float("inf"),
]  # fmt: skip
STRINGS = [
    "", " ", "x" * 3000, "\ud800", "\x00", "\x1b[2J", "\u202e", "a\nb", "../../x", "/", ".", "nan", "1e999", "-1",
    "=1+1", "é" * 150, "\U0001f600", "0001-01-01T00:00:00", "9999-12-31T23:59:59+00:00", "0001-01-01T00:00:00+14:00",
    "<script>", "%s{0}", "torch", "train",
]  # fmt: skip
VALUES: list[Any] = [
    None, [], {}, [[]], [None], {"": None}, {"a": {"b": []}}, [1] * 1000, [[1.0]] * 50, *NUMBERS, *STRINGS,
]  # fmt: skip
PIECES = [
    b"", b"\x00", b"\xff", b"\xff" * 8, b"\x00" * 16, b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"-1", b"9" * 30,
    b"9" * 400, b"9" * 5000, b"1e999", b"nan", b"-inf", b"[" * 2000, b"{" * 2000, b'"', b"'", b"\n", b"\r\n", b",",
    b":", b"=", b"../../../x", b"\xed\xa0\x80", b"\xe2\x80\xae", b"\x1b]0;x\x07", b"<script>", b"a" * 3000,
    b"9007199254740993", b"1e300", b"0", b"-0", b"true", b"0x10", b"1_000", b"\xd9\xa3", b"\t", b"|", b"..", b"#",
]  # fmt: skip
WORDS = re.compile(rb'"(?:[^"\\\n]|\\.)*"|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|[A-Za-z_]+|\s+|.', re.DOTALL)
LONGEST_TEXT = 200_000  # of which words are damaged


def damaged(content: bytes, choice: random.Random) -> bytes:
    """`content` with a few places changed: mostly so that it keeps its form, be it JSON, lines of it, or a text."""
    kind = choice.random()
    if kind < 0.5 and (changed := _damaged_json(content, choice)) is not None:
        return changed
    if kind < 0.75 and content and len(content) < LONGEST_TEXT and b"\x00" not in content:
        return _damaged_words(content, choice)
    return _damaged_bytes(content, choice)


def _damaged_bytes(content: bytes, choice: random.Random) -> bytes:
    data = bytearray(content)
    for _ in range(choice.randint(1, 4)):
        place = choice.randrange(len(data) + 1)
        length = choice.choice([0, 1, 1, 2, 4, 8, 64, 1000])
        kind = choice.randrange(6)
        if kind == 0:
            del data[place:]
        elif kind == 1:
            data[place : place + length] = data[place : place + length] * 2
        elif kind == 2 and place < len(data):
            data[place] ^= 1 << choice.randrange(8)
        else:
            data[place : place + length] = choice.choice(PIECES)
    return bytes(data)


def _damaged_words(content: bytes, choice: random.Random) -> bytes:
    """Words, numbers and strings of a text, or whole lines of it, replaced, moved, doubled or left out."""
    lines = choice.random() < 0.2
    parts = content.splitlines(keepends=True) if lines else WORDS.findall(content)
    for _ in range(choice.randint(1, 3)):
        place = choice.randrange(len(parts))
        kind = choice.randrange(5)
        if kind == 0:
            parts[place] = b""
        elif kind == 1:
            parts[place] *= choice.choice([2, 2, 50])
        elif kind == 2:
            parts[place] = choice.choice(parts)
        else:
            parts[place] = choice.choice(PIECES)
    return b"".join(parts)


def _damaged_json(content: bytes, choice: random.Random) -> bytes | None:
    """JSON, or a line of many, with one to three values damaged; None if it is neither."""
    if (value := _json(content)) is not None:
        return _as_json(damaged_value(value, choice))
    lines = content.splitlines()
    place = choice.randrange(len(lines) or 1)
    if len(lines) < 2 or (value := _json(lines[place])) is None:
        return None
    lines[place] = _as_json(damaged_value(value, choice))
    return b"\n".join(lines) + b"\n"


def _json(content: bytes) -> Any:
    try:
        value = json.loads(content)
    except ValueError:
        return None
    return value if isinstance(value, dict | list) else None


def _as_json(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


def damaged_value(value: Any, choice: random.Random) -> Any:
    """A value of JSON with hostile values somewhere in it."""
    for _ in range(choice.choice([1, 1, 1, 2, 3])):
        container, key = _place(value, choice)
        if container is None:
            break
        choice.choice(CHANGES)(container, key, choice)
    return value


def _place(value: Any, choice: random.Random) -> tuple[Any, Any]:
    """Some container in `value` and a key of it; those at its top are as likely as those far below."""
    container, key = None, None
    while isinstance(value, dict | list) and value:
        container = value
        key = choice.choice(list(value)) if isinstance(value, dict) else choice.randrange(len(value))
        value = container[key]
        if choice.random() < 0.15:
            break
    return container, key


def _replace(container: Any, key: Any, choice: random.Random) -> None:
    container[key] = copy.deepcopy(choice.choice(VALUES))


def _nest(container: Any, key: Any, choice: random.Random) -> None:
    for _ in range(choice.choice([1, 1, 70, 300, 900])):
        container[key] = [container[key]] if choice.random() < 0.9 else {"a": container[key]}


def _delete(container: Any, key: Any, choice: random.Random) -> None:
    del container[key]


def _repeat(container: Any, key: Any, choice: random.Random) -> None:
    """Lists become longer than those beside them."""
    value = container[key]
    if isinstance(value, list):
        container[key] = value * choice.choice([0, 2, 3, 100])
    elif isinstance(container, list):
        container.insert(choice.randrange(len(container) + 1), copy.deepcopy(value))
    else:
        container[f"{key}x"] = value


def _retype(container: Any, key: Any, choice: random.Random) -> None:
    value = container[key]
    if isinstance(value, str):
        container[key] = len(value) if choice.random() < 0.5 else list(value[:9])
    elif isinstance(value, dict):
        container[key] = list(value.items())
    elif isinstance(value, list):
        container[key] = dict(enumerate(value[:9]))
    else:
        container[key] = choice.choice([str(value), value is not None, {"value": value}])


def _rescale(container: Any, key: Any, choice: random.Random) -> None:
    value = container[key]
    if isinstance(value, int | float) and abs(value) < 1e300:  # a larger whole number is no float
        with_sign = choice.choice([-1, 1, 1, 1000, 10**12, 1e-12, 1e200])
        container[key] = value * with_sign + choice.choice([0, 0, 1, 0.5])
    else:
        container[key] = choice.choice(NUMBERS)


def _exchange(container: Any, key: Any, choice: random.Random) -> None:
    other = (
        choice.choice(list(container)) if isinstance(container, dict) else choice.randrange(len(container))
    )
    container[key], container[other] = container[other], container[key]


CHANGES: Sequence[Callable[[Any, Any, random.Random], None]] = (
    _replace, _replace, _replace, _rescale, _rescale, _retype, _repeat, _delete, _exchange, _nest,
)  # fmt: skip


def damage_contents(folder: Path, choice: random.Random) -> None:
    """One of the files of a folder damaged."""
    path = choice.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    path.write_bytes(damaged(path.read_bytes(), choice))


def damage_folder(folder: Path, choice: random.Random) -> None:
    """Some of the files of a folder damaged, lost, doubled, or replaced by what is no file; or all of them alike."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    if choice.random() < 0.25:
        _change_everywhere([path for path in files if path.suffix == ".json"], choice)
        return
    for path in choice.sample(files, min(len(files), choice.choice([1, 1, 2, 5]))):
        content = path.read_bytes()
        kind = choice.random()
        if kind < 0.7:
            path.write_bytes(damaged(content, choice))
        elif kind < 0.8:
            path.with_name(choice.choice(["x.json", "a.1.json", f"{path.stem}9.json", ".json"])).write_bytes(
                content
            )
        else:
            path.unlink()
            choice.choice(REPLACEMENTS)(path)


def _change_everywhere(files: Sequence[Path], choice: random.Random) -> None:
    """One value the same, or another in each, in every file that has it: so that what they say fits together."""
    tables = {path: _json(path.read_bytes()) for path in files}
    keys, value = [], next((table for path, table in tables.items() if path.parent.name == "records"), None)
    while isinstance(value, dict | list) and value and choice.random() < 0.95:
        keys.append(choice.choice(list(value)) if isinstance(value, dict) else choice.randrange(len(value)))
        value = value[keys[-1]]
    hostile, numbered = choice.choice(VALUES), choice.random() < 0.3
    for number, (path, table) in enumerate(tables.items()):
        place = table
        for key in keys[:-1]:
            place = place[key] if _has(place, key) else None
        if keys and _has(place, keys[-1]):
            place[keys[-1]] = (number if choice.random() < 0.5 else f"x{number}") if numbered else hostile
            path.write_bytes(_as_json(table))


def _has(value: Any, key: Any) -> bool:
    return (
        key in value
        if isinstance(value, dict)
        else isinstance(value, list) and isinstance(key, int) and key < len(value)
    )


REPLACEMENTS: Sequence[Callable[[Path], Any]] = (
    lambda _: None,
    lambda path: path.touch(),
    lambda path: path.mkdir(),
    lambda path: path.symlink_to(path.name),
    lambda path: path.symlink_to("/dev/zero"),
    lambda path: path.symlink_to(".."),
    os.mkfifo,
    lambda path: shutil.copy(__file__, path),
)
