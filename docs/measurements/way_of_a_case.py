"""The way of one case from the command to its record: which functions of dlscale this process calls, file by file.

python docs/measurements/way_of_a_case.py [--list]

Runs the default study with the smallest network of `none` on 1 rank, once, and follows its process (not its rank) from
`dlscale run` until the record is written. Each function counts at its first call; what runs while a module is imported
does not. A return comes back to a file that was left before. `--list` prints the files and functions in their order.
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType

from dlscale.benchmarks import cli
from dlscale.benchmarks.records.store import Store

ROOT = Path(cli.__file__).parents[2]
FOLDERS = tuple(str(ROOT / name) for name in ("base", "models", "collectives", "benchmarks", "analysis"))
STUDY = (
    "run",
    "weak-scaling",
    *("--backends", "none", "--ranks", "1", "--preset", "tiny"),
    "--set",
    "launches=1",
)
IS_FUNCTION = 0x1  # of a code's flags: not that of a module or a class


class Way:
    """The functions that were called, in the order of their first calls, until the first record was added."""

    def __init__(self) -> None:
        self.calls: list[CodeType] = []
        self._known: set[CodeType] = set()
        self.ended = False

    def follow(self, frame: FrameType, event: str, _: object) -> None:
        """A profiler, for `sys.setprofile`."""
        code = frame.f_code
        if code is Store.add.__code__ and event == "return":
            self.ended = True
            sys.setprofile(None)
        if event != "call" or code in self._known or not code.co_filename.startswith(FOLDERS):
            return
        if code.co_flags & IS_FUNCTION and not code.co_name.startswith("<") and not _is_importing(frame):
            self._known.add(code)
            self.calls.append(code)

    @property
    def files(self) -> list[tuple[str, list[str]]]:
        """Each stay in a file, with the functions that were new there."""
        stays = groupby(self.calls, key=lambda code: code.co_filename)
        return [
            (str(Path(name).relative_to(ROOT)), [code.co_qualname for code in codes]) for name, codes in stays
        ]


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a module of dlscale is being run that is not the program itself."""
    while frame:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(FOLDERS):
            return True
        frame = frame.f_back
    return False


def main() -> None:
    """Follow one case and print the counts."""
    way = Way()
    with TemporaryDirectory() as results:
        sys.setprofile(way.follow)
        status = cli.run_command(cli.cli, "dlscale", [*STUDY, "--results", results])
        sys.setprofile(None)
    if status or not way.ended:
        sys.exit(f"the study ended with status {status}")
    stays, files = way.files, {name for name, _ in way.files}
    if "--list" in sys.argv:
        for name, functions in stays:
            print(f"{name}: {', '.join(functions)}")
    print(
        f"{len(way.calls)} functions in {len(files)} files, {len(stays)} stays, {len(stays) - len(files)} returns"
    )


if __name__ == "__main__":
    main()
