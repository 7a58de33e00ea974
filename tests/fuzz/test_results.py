"""Whatever is in a results folder, every verb that reads it ends with a line and an exit status, never a traceback."""

from __future__ import annotations

import random
import shutil
import time
from itertools import count
from pathlib import Path

import pytest

from dlscale.benchmarks.cli import main

from .damage import damaged
from .test_parsers import GOLDEN, SECONDS

STATUSES = (0, 1, 2, 3, 4)
TRAINED = ("weak-scaling-2c2a4218", "servers-3f9de700")
VERBS = (
    ("report", "--json"),
    ("status",),
    ("figures",),
    ("proposal",),
    ("compare",),
    ("export", "tidy"),
    ("export", "extrap"),
    ("export", "mllog"),
    ("export", "markdown"),
)
CASES = 20  # without FUZZ_SECONDS


def seeds():
    """The same ones in a test, new ones until the time is over in `make test-nightly`."""
    if not SECONDS:
        yield from range(CASES)
        return
    end, begin = time.monotonic() + SECONDS, random.SystemRandom().randrange(10**9, 10**12)
    for number in count():
        if time.monotonic() > end:
            return
        yield begin + number


@pytest.mark.nightly
@pytest.mark.timeout(0)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("study", TRAINED)
def test_a_damaged_study_is_read_or_refused(tmp_path, capsys, study):
    for seed in seeds():
        choice = random.Random(seed)  # noqa: S311
        folder = tmp_path / "results" / "local" / study
        shutil.copytree(GOLDEN / study, folder)
        before = set(tmp_path.parent.rglob("*"))
        files = [*folder.glob("records/*.json"), folder / "study.json"]
        for path in choice.sample(sorted(files), choice.randint(1, 3)):
            path.write_bytes(damaged(path.read_bytes(), choice))
        verb = choice.choice(VERBS)
        try:
            with pytest.raises(SystemExit) as ended:
                main([*verb, study, "--results", str(tmp_path / "results")])
        except Exception as caught:
            kept = Path("build/fuzz") / f"results-{seed}"
            shutil.copytree(folder, kept, dirs_exist_ok=True)
            pytest.fail(f"{type(caught).__name__}: {str(caught)[:300]}; {' '.join(verb)} of {kept}")
        assert (ended.value.code or 0) in STATUSES
        assert "Traceback" not in capsys.readouterr().err
        outside = {path for path in set(tmp_path.parent.rglob("*")) - before if folder not in path.parents}
        assert not outside
        shutil.rmtree(tmp_path / "results")
