"""What every finding keeps, whatever it says: its columns, strict JSON, and nothing of nothing."""

import json
from functools import cache
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from dlscale.analysis import theme
from dlscale.analysis.finding import PLACE, Finding
from dlscale.analysis.findings import NAMES, load_all
from dlscale.analysis.load import Study
from dlscale.analysis.render import figures, page, screen, text
from dlscale.benchmarks.records.record import Record
from dlscale.benchmarks.records.store import BadFile, load_records
from tests.made_records import in_detail, make_record, make_study, profile_record

GOLDEN = Path(__file__).parents[1] / "golden" / "records"
FOLDERS = ("weak-scaling-2c2a4218", "servers-3f9de700")
STUDIES = ("nothing", "one launch", "planned", "failures", "bad files", "profile", "made", *FOLDERS)


@cache
def study_of(name: str) -> Study:
    launch, failed = make_record(), make_record(failure="it hung")
    records: dict[str, list[Record]] = {
        "one launch": [launch],
        "failures": [failed, make_record(backend="ring", num_ranks=2, failure="it hung")],
        "profile": [profile_record()],
        "made": [in_detail(record) for record in make_study(num_blocks=3)],
    }
    bad = [BadFile(path=Path("x.json"), reason="<script>alert(1)</script>")] if name == "bad files" else []
    if name in FOLDERS:
        records[name], bad = load_records(GOLDEN / name)
    planned = [launch.case] if name == "planned" else []
    return Study(records.get(name, []), planned=planned, bad_files=bad, name=name)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "finding" in metafunc.fixturenames:
        metafunc.parametrize("finding", load_all(), ids=list(NAMES))
    if "study" in metafunc.fixturenames:
        metafunc.parametrize("study", STUDIES, ids=str, indirect=True)


@pytest.fixture
def study(request: pytest.FixtureRequest) -> Study:
    return study_of(request.param)


def test_a_finding_computes_the_columns_that_it_declares(finding: Finding, study: Study) -> None:
    frame = finding.of(study)
    exported = finding.exported(frame)
    missing = [name for name in finding.columns if name not in frame]
    assert not missing, f"declared, and not computed: {missing}"
    assert {*exported} >= {*finding.columns} - {*PLACE} - {"training", "constants", "name"}
    assert frame.columns.is_unique
    assert not [name for name, column in finding.columns.items() if column.label and not column.about]
    assert finding.table(frame).shape[0] in (0, len(frame))


def test_json_is_strict_and_has_a_list_of_rows_per_finding(study: Study) -> None:
    data = json.loads(json.dumps(text.as_data(study, load_all()), allow_nan=False))
    assert {*data} >= {finding.name for finding in load_all() if finding.columns}
    for finding in load_all():
        assert len(data.get(finding.name, [])) in (0, len(finding.of(study)))


def test_a_sentence_is_said_of_rows_only(finding: Finding, study: Study) -> None:
    frame = finding.of(study)
    if len(frame):
        assert isinstance(finding.sentence(frame), str)
        for drawing in finding.drawings:
            assert {*drawing.rows(frame)} <= {*frame}


def test_renderers_show_every_study(study: Study, tmp_path: Path) -> None:
    out = StringIO()
    screen.show(study, load_all(), console=Console(file=out, width=100), full=True)
    sections = list(page.sections_of(study, load_all()))
    page.write(tmp_path / "page.html", title="T", facts={}, sections=sections, origin=study.origin)
    assert not study.errors
    assert "<script>alert" not in (tmp_path / "page.html").read_text()
    assert "nan" not in out.getvalue().lower().split()
    titles = {finding.title for finding in load_all() if len(finding.of(study))}
    assert {section.title for section in sections} <= titles


def test_a_study_without_a_row_has_no_section() -> None:
    assert list(page.sections_of(study_of("nothing"), load_all())) == []


@pytest.mark.parametrize("name", ["profile", "made", "weak-scaling-2c2a4218"])
def test_every_figure_can_be_drawn(name: str, tmp_path: Path) -> None:
    theme.use()
    paths = figures.write(study_of(name), load_all(), tmp_path)
    assert paths
    assert not study_of(name).errors
    assert all(path.stat().st_size > 1000 for path in paths)


def test_names_are_those_of_the_files_and_unique() -> None:
    assert [finding.name for finding in load_all()] == [*NAMES]
    titles = pd.Series([finding.title for finding in load_all()])
    assert titles.is_unique
