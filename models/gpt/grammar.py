"""The grammar of the text that ships with dlscale: enough order to be learnt in seconds, enough chance to be bits.

A rule has several ways, all equally likely; in each, words in capitals are other rules. Two things are beyond rules:
NUMBER is drawn from 0 to 99, and SAME is the last name again, for which a network has to look back.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable

WORD = re.compile("[A-Z]{4,}")
SEED = 2019
NUM_BYTES = 131_073  # 1,024 samples of 128 tokens

RULES: dict[str, tuple[str, ...]] = {
    "SENTENCE": (
        "The THING VERBs the THING.",
        "NAME sends NUMBER THINGs to NAME, and SAME VERBs them.",
        "If the THING is QUALITY, then NAME VERBs NUMBER THINGs.",
        "The QUALITY THING of NAME VERBs NUMBER QUALITY THINGs.",
        "After step NUMBER NAME VERBs every QUALITY THING.",
        "NAME asks: who VERBs the THING? SAME answers: NAME does.",
    ),
    "THING": ("rank", "node", "ring", "message", "gradient", "bucket", "barrier", "window", "kernel", "link"),
    "VERB": ("send", "reduce", "await", "measure", "gather", "scatter", "double", "drop"),
    "QUALITY": ("slow", "fast", "late", "stale", "small", "large", "shared", "idle"),
    "NAME": ("Ada", "Blaise", "Carl", "Edsger", "Grace", "Konrad", "Leslie", "Sofia"),
}
END_OF_PARAGRAPH = 0.2  # after a sentence


def text(num_bytes: int = NUM_BYTES, *, seed: int = SEED) -> bytes:
    """The first bytes of the endless text of that seed."""
    draw = random.Random(seed).random  # noqa: S311 - no version of Python changes its numbers
    found, size = [], 0
    while size < num_bytes:
        end = "\n" if draw() < END_OF_PARAGRAPH else " "
        found.append((_sentence(draw) + end).encode())
        size += len(found[-1])
    return b"".join(found)[:num_bytes]


def _sentence(draw: Callable[[], float]) -> str:
    name = ""

    def replaced(match: re.Match[str]) -> str:
        nonlocal name
        rule = match.group()
        if rule == "SAME":
            return name
        if rule == "NUMBER":
            return str(int(100 * draw()))
        ways = RULES[rule]
        made = WORD.sub(replaced, ways[int(len(ways) * draw())])
        if rule == "NAME":
            name = made
        return made

    return WORD.sub(replaced, "SENTENCE")


if __name__ == "__main__":
    sys.stdout.buffer.write(text())
