"""Damages files as disks, transfers and enemies do: bytes anywhere, and values of JSON replaced by hostile ones."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

PIECES = [
    b"", b"\x00", b"\xff", b"\xff" * 8, b"\x00" * 16, b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"-1", b"9" * 30,
    b"9" * 400, b"9" * 5000, b"1e999", b"nan", b"-inf", b"[" * 2000, b"{" * 2000, b'"', b"'", b"\n", b"\r\n", b",",
    b":", b"=", b"../../../x", b"\xed\xa0\x80", b"\xe2\x80\xae", b"\x1b]0;x\x07", b"<script>", b"a" * 3000,
]  # fmt: skip
VALUES: list[Any] = [
    None, True, -1, 0, 2**63, -(2**63), 10**30, 10**400, 1e308, -1e-308, float("nan"), float("inf"), "", "x" * 3000,
    "\ud800", "\x00", "\x1b[2J", "../../x", "nan", "1e999", [], {}, [[]], [None], {"": None}, [1] * 1000,
]  # fmt: skip


def damaged(content: bytes, choice: random.Random) -> bytes:
    """`content` with one to four places changed; JSON sometimes in one of its values, so that it stays JSON."""
    if choice.random() < 0.5 and (value := _json(content)) is not None:
        return json.dumps(_replaced(value, choice)).encode("utf-8", "surrogatepass")
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


def _json(content: bytes) -> Any:
    try:
        value = json.loads(content)
    except ValueError:
        return None
    return value if isinstance(value, dict | list) else None


def _replaced(value: Any, choice: random.Random) -> Any:
    """`value` with a hostile value somewhere in it, or deep in lists."""
    hostile = choice.choice(VALUES)
    if choice.random() < 0.05:
        for _ in range(choice.choice([70, 300, 900])):
            hostile = [hostile]
    places = list(_places(value))
    container, key = choice.choice(places)
    if choice.random() < 0.2 and isinstance(container, dict):
        del container[key]
    else:
        container[key] = hostile
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        yield value, key
        yield from _places(child)
