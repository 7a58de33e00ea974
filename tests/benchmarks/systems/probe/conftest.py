"""A machine made of files below a folder and of what its commands print."""

import dataclasses
from pathlib import Path

import pytest

from dlscale.benchmarks.systems.probe.node import Host


@dataclasses.dataclass(frozen=True, kw_only=True)
class Told(Host):
    """Commands that are not in `answers` do not exist."""

    answers: dict

    def find(self, program):
        known = {words.split()[0] for words in self.answers}
        return program if program in known else None

    def run(self, program, *arguments):
        return self.answers.get(" ".join([program, *arguments]))


@pytest.fixture
def told(tmp_path):
    """A host of {path: text} and {command: output}."""

    def make(files=None, answers=None, **changes):
        for path, text in (files or {}).items():
            place = tmp_path / path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        values = {
            "hostname": "login03.cluster.example.org",
            "today": "2026-11-22",
            "variables": {},
            "num_allowed": 4,
        }
        return Told(root=Path(tmp_path), answers=answers or {}, **(values | changes))

    return make
