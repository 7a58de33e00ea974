"""What killed ranks left on a machine is removed, and nothing else.

Files of tests stand in /dev/shm only under names that nobody else sweeps.
"""

import mmap
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dlscale.benchmarks.message_sizes import launch
from dlscale.benchmarks.message_sizes.driver.rank import _note_files as note_files_of_the_driver
from dlscale.benchmarks.rank import leftovers
from dlscale.benchmarks.rank.leftovers import note_files, sweep_files
from dlscale.benchmarks.rank.lifeline import hold_lifeline, is_held


@pytest.fixture
def segment():
    """segment(): a new file in /dev/shm; removed at the end."""
    made = []

    def make():
        descriptor, name = tempfile.mkstemp(prefix="dlscale-leftover-test-", dir=leftovers.SHARED_MEMORY)
        os.ftruncate(descriptor, 4096)
        os.close(descriptor)
        made.append(Path(name))
        return made[-1]

    yield make
    for path in made:
        path.unlink(missing_ok=True)


def mapped(path):
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), 0)


@pytest.mark.parametrize("note", [note_files, lambda folder: note_files_of_the_driver(str(folder))])
def test_what_a_rank_has_mapped_is_removed_once_nobody_uses_it(tmp_path, segment, monkeypatch, note):
    monkeypatch.setattr(leftovers, "SECONDS", 0.0)
    kept, removed, gone, other = segment(), segment(), segment(), segment()
    views = [mapped(path) for path in (kept, removed, gone)]
    gone.unlink()
    with hold_lifeline(tmp_path):
        note(tmp_path)
    views[1].close()
    sweep_files(tmp_path)
    assert kept.exists()
    assert not removed.exists()
    assert other.exists()
    views[0].close()
    sweep_files(tmp_path)
    assert not kept.exists()
    views[2].close()


def test_a_process_that_is_ending_is_waited_for(tmp_path, segment):
    path = segment()
    code = f"""import mmap, time
with open({str(path)!r}, "r+b") as file:
    view = mmap.mmap(file.fileno(), 0)
print(flush=True)
time.sleep(0.5)"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        view = mapped(path)
        note_files(tmp_path)
        view.close()
        sweep_files(tmp_path)
        assert not path.exists()


def test_a_file_of_the_launcher_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path = tmp_path / "hydra_hwloc_xmlfile_abc"
    monkeypatch.setattr(os, "getppid", os.getpid)
    with path.open("w"):
        note_files(tmp_path)
    sweep_files(tmp_path)
    assert not path.exists()


@pytest.mark.parametrize("kind", ["other folder", "link", "other machine"])
def test_what_is_not_ours_is_left_alone(tmp_path, segment, kind):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    path = segment()
    note = tmp_path / f"files-{leftovers.boot_id()}-1"
    if kind == "link":
        path.unlink()
        path.symlink_to(victim)
    if kind == "other machine":
        note = tmp_path / "files-0123456789abcdef-1"
    note.write_text(f"{victim if kind == 'other folder' else path}\n")
    sweep_files(tmp_path)
    assert victim.read_text() == "mine"
    assert os.path.lexists(path)


def test_launches_of_a_killed_run_of_message_sizes_are_swept(tmp_path, segment, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    abandoned, used, foreign = (tmp_path / f"{launch.FOLDER_PREFIX}{name}" for name in ("a", "b", "c"))
    path = segment()
    for folder in (abandoned, used, foreign):
        folder.mkdir()
    with hold_lifeline(abandoned), hold_lifeline(used):
        view = mapped(path)
        note_files(abandoned)
        view.close()
        assert is_held(abandoned)
    with hold_lifeline(used):
        launch.sweep_abandoned()
    assert not abandoned.exists()
    assert not path.exists()
    assert used.exists()
    assert foreign.exists()
