"""A study that was packed in between goes on as if it had not been."""

import subprocess

import pytest

pytestmark = [pytest.mark.nightly, pytest.mark.requires("mpiexec", "pyarrow"), pytest.mark.timeout(300)]


def export(bench, option):
    command = [bench.command()[0], "export", option, "--results", str(bench.folder / "results")]
    subprocess.run(command, check=True, capture_output=True)


def test_a_packed_study_repeats_nothing_and_loses_nothing(bench):
    options = ("--backends", "none", "--ranks", "1")
    assert bench.run(*options).returncode == 0
    before = {path.name: path.read_bytes() for path in bench.record_files()}
    missing = bench.record_files()[0]
    missing.unlink()  # one case is left to do
    export(bench, "--pack")
    assert bench.record_files() == []
    done = bench.run(*options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [path.name for path in bench.record_files()] == [missing.name], (
        "only what was missing was measured"
    )
    export(bench, "--unpack")
    after = {path.name: path.read_bytes() for path in bench.record_files()}
    assert after.keys() == before.keys()
    assert {name for name in after if after[name] != before[name]} == {missing.name}
