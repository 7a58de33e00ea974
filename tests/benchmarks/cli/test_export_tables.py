"""`dlscale export` on a study's folder."""

import re
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA, export
from dlscale.benchmarks.cli.figures import figures
from dlscale.benchmarks.cli.proposal import proposal
from tests.made_records import make_record, write_study


@pytest.fixture
def study(tmp_path):
    """Writes records as a study's folder, whose plan is these cases; text as a corrupt one."""

    def write(records, *, corrupt=""):
        folder = write_study(tmp_path / "local" / "weak-scaling-1a2b3c4d", records, planned=True)
        if corrupt:
            (folder / "records" / "torn-00.1.json").write_text(corrupt)
        return folder

    return write


@pytest.fixture
def run(tmp_path):
    def invoke(command, *words):
        arguments = [*words, "--results", str(tmp_path)]
        return CliRunner().invoke(command, arguments, standalone_mode=False, catch_exceptions=False)

    return invoke


MARKDOWN = ("--format", "markdown")
RECORDS = [
    make_record(backend=backend, num_ranks=n, block=b, samples_per_second=100 * n)
    for backend in ("none", "ring")
    for n in (1, 2)
    for b in range(6)
]


def test_tables_lie_in_the_study_s_folder_or_where_one_says(study, run, tmp_path):
    folder = study(RECORDS)
    done = run(export.export)
    assert done.return_value == 0
    assert "24 cases: launches.csv, windows.csv, finding-" in done.stdout
    assert "datapackage.json in" in done.stdout
    assert len(pd.read_csv(folder / "tables" / "launches.csv")) == 24
    run(export.export, "--per-rank", "--out", str(tmp_path / "other"))
    assert len(pd.read_csv(tmp_path / "other" / "ranks.csv")) == 11 * (12 + 24)


def test_no_spreadsheet_takes_a_cell_for_a_formula(study, run):
    command = '=cmd|" /C calc"!A0'
    fingerprint = RECORDS[0].fingerprint.model_copy(update={"commit": command})
    folder = study([record.model_copy(update={"fingerprint": fingerprint}) for record in RECORDS])
    run(export.export)
    cells = pd.read_csv(folder / "tables" / "launches.csv", dtype=str, keep_default_na=False)
    texts = [text for column in cells for text in cells[column]]
    assert f"'{command}" in texts
    assert not [text for text in texts if text.startswith(("=", "@"))]


def test_the_documented_lines_read_what_was_written(study, run, tmp_path, monkeypatch):
    study(RECORDS)
    run(export.export, "--out", str(tmp_path / "tables"))
    page = (Path(__file__).parents[3] / "docs" / "report.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(page.partition("```python\n")[2].partition("```")[0], names)  # noqa: S102
    assert len(names["windows"]) == 24 * 10


def test_corrupt_records_are_named_and_the_sound_ones_exported(study, run):
    study(RECORDS, corrupt='{"schema_version"')
    for form in ("csv", "markdown"):
        done = run(export.export, "--format", form)
        assert done.return_value == FAILED_CASES
        assert "torn-00.1.json: not complete JSON" in done.stderr


def test_a_count_beyond_64_bits_costs_its_record(study, run):
    """A table has no type for it: it was a traceback."""
    text = RECORDS[0].model_dump_json()
    study(RECORDS, corrupt=re.sub(r'"global_batch":\d+', '"global_batch":1' + 25 * "0", text))
    for form in ("csv", "markdown"):
        done = run(export.export, "--format", form)
        assert (done.return_value, done.exception) == (FAILED_CASES, None)
        assert "should be less than 9007199254740992" in done.stderr


@pytest.mark.parametrize("command", [export.export, figures, proposal], ids=lambda command: command.name)
def test_where_nothing_can_be_written_out_is_named(study, run, tmp_path, command):
    study(RECORDS)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="Not a directory; choose another one with --out"):
        run(command, "--out", str(tmp_path / "file" / "there"))


def test_nothing_with_a_number_is_insufficient(study, run):
    study([make_record(failure="died")])
    assert run(export.export, *MARKDOWN).return_value == INSUFFICIENT_DATA


def test_markdown_is_printed_or_written(study, run, tmp_path):
    study(RECORDS)
    printed = run(export.export, *MARKDOWN).stdout
    assert "### HEP-CNN tiny, torch, weak scaling on local" in printed
    assert run(export.export, *MARKDOWN, "--out", str(tmp_path / "t.md")).return_value == 0
    assert (tmp_path / "t.md").read_text() == printed
