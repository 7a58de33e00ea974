"""What it took to repackage a data set in another format: `dlscale run frameworks --set formats=all`.

`<name>.json` beside the data has it; a preparation that is there is not made again.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from dlscale.base.definitions import Frozen, read_json
from dlscale.base.files import write_atomically
from dlscale.base.strings import Name, Text

FOLDER = "formats"  # of prepared data, in the folder of a system's studies
REMEDY = "remove it, and the data are prepared again"


class Preparation(Frozen):
    """A data set in one format; `name` is that of its folder, with which the data of cells begin."""

    name: Text
    format: Name
    source: Text  # the name of what was repackaged
    source_format: Text
    num_samples: PositiveInt
    num_skipped: NonNegativeInt = 0  # bad samples that were left out
    image_bytes: PositiveInt  # of the encoded images alone
    num_bytes: PositiveInt  # of all files
    num_files: PositiveInt
    seconds: PositiveFloat  # one conversion, until it is on the disk


def write_preparation(found: Preparation, folder: Path) -> None:
    """Write it beside the data."""
    write_atomically(_path(folder, found.name), found.model_dump_json(indent=1) + "\n")


def read_preparation(folder: Path, name: str) -> Preparation | None:
    """The preparation of that name; None if its data were not prepared to the end. Raises UsageError."""
    path = _path(folder, name)
    if not (path.is_file() and (folder / name).exists()):
        return None
    return read_json(Preparation, path, remedy=REMEDY)


def read_preparations(folder: Path) -> list[Preparation]:
    """All in a folder, by name, also where the data are gone since. Raises UsageError."""
    return [read_json(Preparation, path, remedy=REMEDY) for path in sorted(folder.glob("*.json"))]


def _path(folder: Path, name: str) -> Path:
    return folder / f"{name}.json"
