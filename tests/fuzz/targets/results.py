"""Folders of results that are damaged anywhere, through every verb that reads them."""

import contextlib
import io
import json
import random
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

from matplotlib.figure import Figure

from tests.analysis.made_predictions import predictions
from tests.fuzz.damage import damage_folder
from tests.fuzz.target import GOLDEN, Target
from tests.made_records import TARGET, make_record, make_study, profile_record, solved, write_study

from .commands import WORDS, run

TRAINED, SERVERS, MADE = "weak-scaling-2c2a4218", "servers-3f9de700", "made-0a1b2c3d"
RUN = next(GOLDEN.glob("collectives-*"))
REACHED = {"step": 10, "seconds": 1.5, "auc": 0.95}
KEPT_RECORDS = 4  # of the stored ones, every so many
PLACE = Path("results") / "local"
VERBS = (
    "report {0} --json", "report {0} --json", "report {0} --full", "report {0}",
    "report {0} --predicted latest", "report results/local/predictions/a.jsonl", "status --json", "figures {0}",
    "figures {0} --for paper --only efficiency", "proposal {0} --samples 100000 --runs 5", "compare {0}",
    "compare {0} {1}", "export {0}",
    "export {0} --format markdown", "collectives report",
    "predict weak-scaling --system cori --from {0} --calibrate {1} --nodes 1,2 --json",
    "run weak-scaling --dry-run --ranks 1,2",
)  # fmt: skip


def make(folder: Path) -> None:
    """Studies of several kinds, a run of message sizes, and predictions."""
    place = folder / PLACE
    for study in (TRAINED, SERVERS):
        shutil.copytree(GOLDEN / study, place / study)
    for number, path in enumerate(sorted((place / TRAINED / "records").iterdir())):
        if number % KEPT_RECORDS:
            path.unlink()
    shutil.copytree(RUN, place / "collectives" / RUN.name)
    trained = [
        solved(make_record(backend="ring", num_ranks=ranks, block=block, target=TARGET), REACHED)
        for ranks in (1, 2)
        for block in range(3)
    ]
    content = json.loads((GOLDEN / SERVERS / "study.json").read_text())
    del content["launches"]
    records = [*make_study(num_blocks=2), *trained, profile_record()]
    write_study(place / MADE, records, planned=True, **content)
    (place / "predictions").mkdir()
    lines = [record.model_dump_json() for record in predictions()]
    (place / "predictions" / "a.jsonl").write_text("\n".join(lines) + "\n")
    (folder / WORDS).write_text(json.dumps(["status", "--results", "results"]))


def damage(folder: Path, choice: random.Random) -> None:
    """One of the studies damaged, and the command that reads it."""
    first, second = choice.sample([TRAINED, SERVERS, MADE, MADE], 2)
    verb = choice.choice(VERBS).format(first, second)
    damaged = {"collectives report": "collectives", "predictions": "predictions"}
    part = next((name for words, name in damaged.items() if words in verb), first)
    damage_folder(folder / PLACE / part, choice)
    (folder / WORDS).write_text(json.dumps([*verb.split(), "--results", "results"]))


def read(folder: Path) -> None:
    """Run the command; whatever it writes is below the system's results."""
    around = (folder.parent, folder, folder / "results")
    before = {path for place in around for path in place.iterdir()}
    with contextlib.chdir(folder), mock.patch.object(Figure, "savefig", _save):
        run(json.loads((folder / WORDS).read_text()))
    if outside := {path for place in around for path in place.iterdir()} - before:
        raise AssertionError(f"written outside: {sorted(map(str, outside))}")


def _save(figure: Figure, file: Any, **_: object) -> None:
    """Draw a figure roughly, which takes a tenth of the time."""
    figure.canvas.draw()
    file.write("<svg/>" if isinstance(file, io.TextIOBase) else b"<svg/>")


TARGETS: dict[str, Target] = {"results": Target(make=make, read=read, damage=damage, share=2.0, seconds=20.0)}
