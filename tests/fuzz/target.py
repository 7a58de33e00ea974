"""What is fuzzed: a reader, an input that it takes whole, and how such an input is damaged.

An input is a folder. It is a function of the target's name and a seed, so that two numbers say all of it.
"""

from __future__ import annotations

import os
import random
import shutil
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from dlscale.base.errors import UsageError

from .damage import damage_folder, damaged

LONGEST_MESSAGE = 20_000
FRAMES = 4
CHECKOUT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parents[1] / "golden" / "records"


@dataclass(frozen=True, kw_only=True)
class Target:
    """`read` of a folder raises one of `refusals`, in one line, for what it does not take, and nothing else.

    `make` fills the folder with what it takes, once; `damage` changes it.
    """

    make: Callable[[Path], object]
    read: Callable[[Path], object]
    damage: Callable[[Path, random.Random], object] = damage_folder
    refusals: tuple[type[Exception], ...] = (UsageError,)
    share: float = 1.0  # of the inputs, beside other targets
    seconds: float = 10.0  # of processor time, that an input may take


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of an input. `place` says where an error arose, for telling faults apart."""

    kind: Literal["accepted", "refused", "fault"]
    text: str = ""
    place: str = ""
    seconds: float = 0.0


def file_target(
    name: str,
    content: Callable[[], bytes],
    read: Callable[[Path], object],
    *,
    beside: Callable[[Path], object] = lambda _: None,
    **fields: object,
) -> Target:
    """A target of one file of that name; others may stand beside it."""
    whole: list[bytes] = []

    def make(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        beside(folder)
        (folder / name).write_bytes(content())

    def damage(folder: Path, choice: random.Random) -> None:
        if not whole:
            whole.append(content())
        (folder / name).write_bytes(damaged(whole[0], choice))

    return Target(make=make, read=lambda folder: read(folder / name), damage=damage, **fields)  # type: ignore[arg-type]


def text_target(read: Callable[[str], object], content: str, **fields: object) -> Target:
    """A target of a text, as options, variables and other programs have it; ValueError refuses it, too."""

    def of_file(path: Path) -> None:
        read(path.read_bytes().decode("utf-8", "surrogateescape"))

    return file_target("text", content.encode, of_file, refusals=(ValueError, UsageError), **fields)


class Input:
    """Inputs of a target, one after the other, in a folder that is made once and mended after each."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._kept = TemporaryDirectory(prefix="dlscale-fuzz-")
        self.folder = Path(self._kept.name) / "input"

    @cached_property
    def _whole(self) -> Path:
        place = Path(self._kept.name) / "whole"
        place.mkdir()
        self.target.make(place)
        return place

    def make(self, seed: int | None) -> Path:
        """The folder of that seed's input; None: the whole one."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self._whole, self.folder, symlinks=True)
        if seed is not None:
            self.target.damage(self.folder, random.Random(seed))  # noqa: S311
        return self.folder

    def run(self, seed: int | None) -> Outcome:
        """What the target's reader does with it."""
        self.make(seed)
        return self.read()

    def read(self) -> Outcome:
        """What the reader does with what is in the folder now."""
        begin = processor_seconds()
        outcome = _outcome(partial(self.target.read, self.folder), self.target.refusals)
        return Outcome(**vars(outcome) | {"seconds": processor_seconds() - begin})

    def close(self) -> None:
        """Remove the folder."""
        with suppress(OSError):
            self._kept.cleanup()


def processor_seconds() -> float:
    """Of this process and of those that it has waited for."""
    return sum(os.times()[:4])


def _outcome(call: Callable[[], object], refusals: tuple[type[Exception], ...]) -> Outcome:
    try:
        call()
    except refusals as error:
        text = str(error)
        if not isinstance(error, UsageError) or ("\n" not in text and len(text) < LONGEST_MESSAGE):
            return Outcome(kind="refused", text=text)
        size = f"a message of {len(text.splitlines())} lines, {len(text)} characters: {text[:200]!r}"
        return Outcome(kind="fault", text=size, place=_place(error))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return Outcome(kind="fault", text=f"{type(error).__name__}: {str(error)[:300]}", place=_place(error))
    return Outcome(kind="accepted")


def _place(error: BaseException) -> str:
    """The lines of dlscale's that an error passed, the last one first."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if str(CHECKOUT) in frame.filename]
    own = [
        frame for frame in frames if "/tests/fuzz/" not in frame.filename and ".venv" not in frame.filename
    ]
    places = [f"{Path(frame.filename).relative_to(CHECKOUT)}:{frame.lineno}" for frame in reversed(own)]
    return " < ".join(places[:FRAMES])
