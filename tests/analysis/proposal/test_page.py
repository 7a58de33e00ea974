"""docs/proposal.md names the options and verdicts that there are."""

import re
from pathlib import Path
from typing import get_args

from dlscale.analysis.proposal.sizes import Verdict
from dlscale.benchmarks.cli.proposal import proposal

PAGE = (Path(__file__).parents[3] / "docs" / "proposal.md").read_text()


def test_every_option_has_a_row():
    options = {option for one in proposal.params for option in one.opts if option.startswith("--")}
    assert set(re.findall(r"^\| `(--[a-z]+)`", PAGE, re.MULTILINE)) == options - {"--results"}


def test_every_verdict_has_a_row():
    table = PAGE.split("| `keeps` |\n")[1].split("\n\n")[0]
    found = [
        line.split("|")[2].strip()
        for line in table.splitlines()
        if line.startswith("| ") and "---" not in line
    ]
    assert sorted(found) == sorted(get_args(Verdict))
