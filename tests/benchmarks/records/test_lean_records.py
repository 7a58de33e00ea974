"""Records that were read keep less in memory than those that were made, and say the same."""

import importlib.util
import random
from pathlib import Path

from dlscale.benchmarks.records.files import parse_record
from dlscale.benchmarks.records.record import Case

_MAKER = importlib.util.spec_from_file_location(
    "made_records", Path(__file__).parents[2] / "benchmark" / "suite" / "made_records.py"
)
made_records = importlib.util.module_from_spec(_MAKER)
_MAKER.loader.exec_module(made_records)


def test_windows_share_the_names_of_their_fields():
    made = made_records.record(Case(cell=made_records.cell(), block=0, position=0), random.Random(1))  # noqa: S311
    read = parse_record(Path("x"), made.model_dump_json().encode())
    assert read == made
    assert read.model_dump_json() == made.model_dump_json()
    assert read.model_dump_json(exclude_unset=True) == made.model_dump_json()
    assert len({id(window.model_fields_set) for window in read.windows}) == 1
