"""How verbs find the study that they are given: by path, by the beginning of its name, or not at all."""

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli.options import choose_study


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "results" / "local" / "weak-scaling-1a2b3c4d"
    (folder / "records").mkdir(parents=True)
    (folder / "study.json").write_text("{}")
    (folder / "report.html").touch()
    return folder


@pytest.mark.parametrize("by", ["path", "name", "latest"])
def test_a_study_is_found(folder, by):
    name = {"path": str(folder), "name": "weak", "latest": None}[by]
    results = folder.parents[1] if by != "path" else folder / "elsewhere"
    assert choose_study(results, name) == folder


@pytest.mark.parametrize("part", ["report.html", "records"])
def test_what_lies_in_a_study_names_the_study(folder, part):
    with pytest.raises(UsageError, match=f"{part} is in a study's folder, but is no study; .*{folder.name}$"):
        choose_study(folder.parents[1], str(folder / part))


def test_a_study_given_as_results_is_said_to_be_one(folder):
    with pytest.raises(UsageError, match="is a study, not a folder of results"):
        choose_study(folder, None)
