"""User's values as words of a script: quoted, and refused where a line could not hold them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from dlscale.models.errors import UsageError

_UNFIT = re.compile(r"[\x00\n\r]")
_TAIL = len("-job-000")
_NAME = re.compile(r"\$(?:\w+|\{\w+\})")


def one_line(value: str, what: str) -> str:
    """`value`, if it fits into a line. Raises UsageError for a line break or a NUL in it."""
    if _UNFIT.search(value):
        raise UsageError(
            f"{what} has a line break or a NUL in it ({value!r}), which no batch script can hold; remove it"
        )
    return value


def word(value: str, what: str) -> str:
    """`value` as one word for the shell and for the parsers of directives, taken literally."""
    return shlex.quote(one_line(value, what))


def words(values: Iterable[str], what: str) -> str:
    """Several of them."""
    return " ".join(word(value, what) for value in values)


def path_word(value: str, what: str) -> str:
    """As `word`, but $NAME and ${NAME} stand for variables of the job: such paths differ from user to user."""
    one_line(value, what)
    if not _NAME.search(value):
        return shlex.quote(value)
    literal = [re.sub(r'(["$`\\])', r"\\\1", part) for part in _NAME.split(value)]
    names = [*_NAME.findall(value), ""]
    return '"' + "".join(part + name for part, name in zip(literal, names, strict=True)) + '"'


def job_name(value: str, *, longest: int = 100) -> str:
    """A job's name as every scheduler takes it: it is only for people, so what does not fit is replaced.

    A long one keeps its end, which tells a study's jobs apart.
    """
    name = re.sub(r"[^A-Za-z0-9._-]", "-", value)
    name = name if name[:1].isalpha() else f"dlscale-{name}"
    return name if len(name) <= longest else name[: longest - _TAIL] + name[-_TAIL:]
