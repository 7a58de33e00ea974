"""What it took to repackage a data set in another format: `dlscale run frameworks --set formats=all`.

`<name>.json` beside the data has it; a preparation that is there is not made again.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt, ValidationError

from dlscale.base.definitions import Frozen, first_problem
from dlscale.base.errors import UsageError
from dlscale.base.files import read_regular, write_atomically
from dlscale.base.strings import Name, Text

FOLDER = "formats"  # of prepared data, in the folder of a system's studies


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
    try:
        return Preparation.model_validate_json(read_regular(path))
    except ValidationError as error:
        raise UsageError(
            f"{path} is no preparation of data ({first_problem(error)}); remove it to prepare them again"
        ) from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); remove it") from None


def read_preparations(folder: Path) -> list[Preparation]:
    """All in a folder, by name, also where the data are gone since. Raises UsageError."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            found.append(Preparation.model_validate_json(read_regular(path)))
        except (OSError, ValidationError):
            raise UsageError(f"{path} is no preparation of data; remove it") from None
    return found


def _path(folder: Path, name: str) -> Path:
    return folder / f"{name}.json"
