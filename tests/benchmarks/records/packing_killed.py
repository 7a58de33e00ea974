"""Packs or unpacks a study again and again, killed by SIGKILL one step later each time, until it gets through.

    python packing_killed.py STUDY_FOLDER pack|unpack

Steps are the calls that open, rename, remove or fsync a file of the study. Each time begins with a copy of what there
was. Prints JSON: for each time, whether it was killed, what readers saw then, and what after the same command had
ended by itself.
"""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pyarrow.parquet  # noqa: F401 - once, and not in every child

from dlscale.benchmarks.records import packing
from dlscale.benchmarks.records.files import load_records, summaries
from dlscale.benchmarks.records.store import Store

WATCHED = ("open", "os.rename", "os.remove", "os.utime")


def killed_at(folder: Path, verb: str, step: int) -> bool:
    """Do it in a process of its own, which dies at that step; False if it needs fewer."""
    child = os.fork()
    if child == 0:
        left = step

        def count(_: int = 0) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

        def hear(event: str, arguments: tuple[object, ...]) -> None:
            if event in WATCHED and str(folder) in str(arguments[0]):
                count()

        os.fsync = count  # a kill takes nothing away that the kernel has
        os.sync = count
        sys.addaudithook(hear)
        getattr(packing, verb)(Store(folder))
        os._exit(0)
    return os.waitpid(child, 0)[1] != 0


def look(folder: Path, verb: str) -> dict[str, object]:
    """What readers see now, and what after the same command has ended by itself; in a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.fsync = os.sync = lambda *_: None
        records, bad = load_records(folder)
        shown, bad_shown = summaries(folder)
        found = {
            "records": len(records),
            "status": len(shown),
            "bad": [one.reason for one in [*bad, *bad_shown]],
        }
        getattr(packing, verb)(Store(folder))
        found["after"] = len(load_records(folder)[0])
        os.write(writing, json.dumps(found).encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as pipe:
        return json.loads(pipe.read())


def main() -> None:
    folder, verb = Path(sys.argv[1]), sys.argv[2]
    original = folder.with_name("original")
    shutil.copytree(folder, original)
    found = []
    killed = True
    while killed:
        shutil.rmtree(folder)
        shutil.copytree(original, folder)
        killed = killed_at(folder, verb, len(found))
        found.append({"killed": killed, **look(folder, verb)})
    shutil.rmtree(original)
    print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    main()
