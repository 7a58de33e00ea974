"""`dlscale report`: the page in the study's folder, and what was left out."""

import fcntl
import json

import pytest
from click.testing import CliRunner

from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import FAILED_CASES
from dlscale.benchmarks.cli.report import report
from dlscale.benchmarks.records.record import Failure
from dlscale.benchmarks.records.store import Store
from tests.made_records import windows_of, write_study

ONE = (("hep_cnn", "torch"),)


@pytest.fixture
def results(made, tmp_path):
    def write(records):
        folder = tmp_path / "local" / "weak-scaling-1a2b3c4d"
        return Store(write_study(folder, records, planned=True, schema=1, study={"name": "weak-scaling"}))

    return write


@pytest.fixture
def store(made, results):
    return results(made.study(trainings=ONE))


def run(store, *options):
    done = CliRunner().invoke(
        report, ["--results", str(store.folder.parents[1]), *options], standalone_mode=False
    )
    assert done.exception is None, done.exception
    return done.return_value, done.output


def test_the_page_is_in_the_studys_folder(store):
    status, said = run(store)
    assert status == 0
    assert said.rstrip().endswith(f"report: {store.folder / 'report.html'}")
    page = (store.folder / "report.html").read_text()
    assert "largest loss: communication and waiting" in page
    assert "weak-scaling-1a2b3c4d" in page
    run(store)
    assert (store.folder / "report.html").read_text() == page


def test_json_is_json_alone(store):
    assert json.loads(run(store, "--json")[1])["schema"] == 1
    assert not (store.folder / "report.html").exists()


def test_of_two_fingerprints_one_is_shown_and_the_other_named(made, results):
    store = results(
        [*made.study(trainings=ONE), *made.study(trainings=ONE, num_blocks=2, fingerprint="0123456789abcdef")]
    )
    status, said = run(store)
    assert status == FAILED_CASES
    assert "Left out: 32 cases of local / default / torch with fingerprint" in said
    assert "torch with fingerprint 0123456789abcdef" in run(store, "--full")[1]
    assert "0123456789abcdef" in (store.folder / "report.html").read_text()


def test_an_attempt_that_was_made_good_since_is_no_failed_case(made, results):
    """Interrupted, resumed and finished: make would end with an error for ever."""
    records = made.study(trainings=ONE)
    stopped = Failure(kind="interrupted", rank=None, message="dlscale was stopped while this case ran")
    attempt = records[0].model_copy(
        update={"failure": stopped, "windows": windows_of([], len(records[0].ranks))}
    )
    store = results(records)
    path = store.records_folder / "again.1.json"
    path.write_text(attempt.model_copy(update={"attempt": 2}).model_dump_json())
    assert run(store)[0] == 0
    lost = attempt.model_copy(update={"case": attempt.case.model_copy(update={"block": 99})})
    path.write_text(lost.model_dump_json())
    assert run(store)[0] == FAILED_CASES


def test_a_study_that_is_being_measured_says_so(store):
    with (store.folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert store.busy
        run(store)
        assert "The study is still running" in (store.folder / "report.html").read_text()
    assert not store.busy
    run(store)
    assert "The study is still running" not in (store.folder / "report.html").read_text()


def test_a_page_that_cannot_be_written_is_a_failure_after_the_screen(store):
    (store.folder / "report.html").mkdir()  # a file cannot take its place, as on a full disk
    done = CliRunner().invoke(report, ["--results", str(store.folder.parents[1])], standalone_mode=False)
    assert isinstance(done.exception, UsageError)
    assert "report.html: Is a directory" in str(done.exception)
    assert "samples/s" in done.output


def test_a_study_with_a_link_in_the_place_of_a_folder_is_not_reported(store, tmp_path):
    (tmp_path / "home").mkdir()
    (store.folder / "figures").symlink_to(tmp_path / "home")
    done = CliRunner().invoke(report, ["--results", str(store.folder.parents[1])], standalone_mode=False)
    assert "figures is a symbolic link, which is not followed here" in str(done.exception)
    assert not list((tmp_path / "home").iterdir())
