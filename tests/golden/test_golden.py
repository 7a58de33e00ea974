"""The same records give the same numbers: real studies on two cores, and all that the analysis says of them.

What is in `expected` stays, numbers to 1e-9; keys, columns and files may be added. Of `expected-text` the numbers
stay, for words may change.
"""

import csv
import io
import json
import math
import re
import runpy
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent
REWRITE = runpy.run_path(str(FOLDER / "rewrite.py"))
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?!\w)")

pytestmark = pytest.mark.requires("pyarrow")


@pytest.mark.parametrize("name", REWRITE["names"]())
def test_golden(name: str):
    data, text = REWRITE["golden"](name)
    wrong: list[str] = []
    for file, content in stored(FOLDER / "expected" / name):
        now = parsed(file, data[file]) if file in data else None
        wrong += [f"{file}{one}" for one in differences(parsed(file, content), now)]
    for file, content in stored(FOLDER / "expected-text" / name) if text else ():
        lost = Counter(numbers(content)) - Counter(numbers(text.get(file, "")))
        wrong += [f"{file}: no more {', '.join(lost)}"] if lost else []
    told = "\n".join(wrong[:20])
    assert not wrong, f"{len(wrong)} differences; if they are meant: python tests/golden/rewrite.py\n{told}"


def numbers(text: str) -> Iterator[str]:
    """Those of a text; of long ones nine digits, as the last ones depend on the CPU's vector instructions."""
    return (number if len(number) < 12 else f"{float(number):.9g}" for number in NUMBER.findall(text))


def stored(folder: Path) -> Iterator[tuple[str, str]]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    assert paths, f"nothing in {folder}"
    for path in paths:
        yield path.relative_to(folder).as_posix(), path.read_text(encoding="utf-8")


def parsed(file: str, content: str) -> Any:
    kind = Path(file).suffix
    if kind == ".json":
        return json.loads(content)
    if kind == ".csv":
        rows = csv.DictReader(io.StringIO(content))
        return [{key: cell(text) for key, text in row.items()} for row in rows]
    return content.splitlines()


def cell(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def differences(golden: Any, now: Any, where: str = "") -> Iterator[str]:
    """What of `golden` is not in `now`; the other way round nothing is asked."""
    if isinstance(golden, dict) and isinstance(now, dict):
        for key, value in golden.items():
            if key in now:
                yield from differences(value, now[key], f"{where} {key}")
            else:
                yield f"{where}: no {key}"
    elif isinstance(golden, list) and isinstance(now, list):
        if len(golden) != len(now):
            yield f"{where}: {len(now)} instead of {len(golden)}"
        for place, (value, other) in enumerate(zip(golden, now, strict=False)):
            yield from differences(value, other, f"{where} [{place}]")
    elif not alike(golden, now):
        yield f"{where}: {now!r} instead of {golden!r}"


def alike(golden: Any, now: Any) -> bool:
    if isinstance(golden, bool) or isinstance(now, bool):
        return golden is now
    if isinstance(golden, int | float) and isinstance(now, int | float):
        return math.isclose(golden, now, rel_tol=1e-9, abs_tol=1e-15) or str(golden) == str(now) == "nan"
    return bool(golden == now)
