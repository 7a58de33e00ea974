"""What a study does when something dies, stops, or is in the way."""

import json
import os
import signal
import subprocess

import h5py
import numpy as np
import psutil
import pytest

from tests.processes import wait_for

pytestmark = [pytest.mark.requires("mpiexec", "ring"), pytest.mark.timeout(300)]


def long_study(bench, backends='"ring"', **rules):
    """A study on 2 ranks whose launches go on until somebody ends them."""
    rules |= {"max_steps": 1_000_000, "min_steps": 200_000}
    text = bench.study.read_text()
    text = text.replace('"none", "mpi", "gloo", "ring"', backends).replace("ranks = [1, 2]", "ranks = [2]")
    text = text.replace('controls = ["synthetic", "loader"]', "").replace("min_steps = 3", "")
    path = bench.folder / "long.toml"
    path.write_text(text + "".join(f"{name} = {value}\n" for name, value in rules.items()))
    return path


def descendants(pid):
    return [child.pid for child in psutil.Process(pid).children(recursive=True)]


def gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def is_launcher(pid):
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        program = os.path.basename(file.read().split(b"\0")[0])
    return program.startswith((b"mpiexec", b"prterun"))  # which Open MPI's mpiexec becomes


def two_ranks(bench):
    """Process ids by rank of the launch that runs now; the one before may not have cleared its spool yet."""

    def alive():
        found = {rank: pid for rank, pid in bench.running_ranks().items() if not gone(pid)}
        return found if len(found) == 2 else None

    return wait_for(alive)


@pytest.mark.slow
@pytest.mark.any_mpi
@pytest.mark.parametrize(
    ("backend", "rank"), [("ring", 1), pytest.param("gloo", 0, marks=pytest.mark.nightly)]
)
def test_a_rank_that_dies_ends_its_launch_and_the_study_goes_on(bench, backend, rank):
    """Both launches are endless; no other dlscale measures into the folder meanwhile."""
    study = long_study(bench, f'"{backend}"')
    twice = ("--launches", "2")
    with bench.start(*twice, study=study) as process:
        killed = two_ranks(bench)
        second = bench.run(*twice, study=study)
        assert second.returncode == 1
        assert "another dlscale is measuring" in second.stderr
        os.kill(killed[rank], signal.SIGKILL)
        wait_for(bench.record_files)
        others = two_ranks(bench)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130, bench.said()
    records = sorted(bench.records(), key=lambda record: record.started_at)
    assert [record.failure.kind for record in records] == ["killed", "interrupted"]
    assert records[0].failure.rank == rank
    for record in records:
        assert len(record.counted), "finished windows are kept"
    assert all(wait_for(lambda pid=pid: gone(pid)) for pid in (*killed.values(), *others.values()))


@pytest.mark.slow
@pytest.mark.any_mpi
@pytest.mark.parametrize(
    "number",
    [
        signal.SIGKILL,
        # The test of a launch between its cases ends with one by day.
        *(pytest.param(number, marks=pytest.mark.nightly) for number in (signal.SIGINT, signal.SIGTERM)),
    ],
)
def test_a_stopped_dlscale_takes_its_ranks_along_and_loses_no_finished_window(bench, number):
    study = long_study(bench)
    with bench.start(study=study) as process:
        two_ranks(bench)
        family = descendants(process.pid)
        if number == signal.SIGKILL:  # a launcher that is stopped cannot end by itself
            (mpiexec,) = (pid for pid in family if is_launcher(pid))
            os.kill(mpiexec, signal.SIGSTOP)
        os.kill(process.pid, number)
        process.wait(timeout=30)
        assert all(wait_for(lambda pid=pid: gone(pid), seconds=20) for pid in family)
    with bench.start(study=study):  # SIGKILL leaves spools, which become records before anything else
        wait_for(bench.record_files)
        (record,) = bench.records()
    assert record.failure.kind == "interrupted"
    assert len(record.counted)


# Two launches, of a training and the controls beside it.
SHORT = ("--backends", "none", "--ranks", "1,2")


def test_a_continued_study_repeats_nothing(bench):
    with bench.start(*SHORT) as process:
        wait_for(lambda: len(bench.record_files()) >= 2)
        os.kill(process.pid, signal.SIGKILL)
    before = {path.name: path.read_bytes() for path in bench.record_files()}
    done = bench.run(*SHORT)
    assert done.returncode == 0, done.stdout + done.stderr
    after = {path.name: path.read_bytes() for path in bench.record_files()}
    assert {name: after[name] for name in before} == before
    good = [record.case.id for record in bench.records() if record.good]
    assert len(good) == len(set(good)) == 6
    (folder,) = bench.folder.glob("results/*/tiny-*")
    assert not list(folder.glob("spool/*")), "nothing is left over"


@pytest.mark.slow
def test_a_launch_killed_between_its_cases_keeps_the_first(bench):
    """The control shares a launch with the training: killed in the middle of it, the training is done."""
    study = long_study(bench, '"none"')
    text = study.read_text().replace("min_steps = 200000", "min_steps = 3")
    study.write_text('controls = ["synthetic"]\n' + text.replace("budget = 1", "budget = 60"))

    def first_case_ended():
        return any(event["event"] == "CaseEnd" for events in bench.spooled() for event in events)

    with bench.start(study=study) as process:
        wait_for(first_case_ended)
        os.kill(process.pid, signal.SIGKILL)
    with bench.start(study=study) as process:
        wait_for(lambda: len(bench.record_files()) == 2)  # what the killed one left
        outcomes = {record.case.cell.control: record.good for record in bench.records()}
        assert outcomes == {"train": True, "synthetic": False}
        wait_for(bench.running_ranks)
        family = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130, bench.said()
        assert all(wait_for(lambda pid=pid: gone(pid), seconds=20) for pid in family)
    attempts = sorted((record.case.cell.control, record.attempt) for record in bench.records())
    assert attempts == [("synthetic", 1), ("synthetic", 2), ("train", 1)]


@pytest.mark.slow
def test_a_study_of_another_system_and_a_corrupt_record_are_told_before_anything_starts(bench):
    words = ("--backends", "none", "--ranks", "1", "--data", "synthetic")
    assert bench.run(*words).returncode == 0
    (path,) = bench.folder.glob("results/*/*/study.json")
    planned = path.read_text()
    other = json.loads(planned)
    other["fingerprint"]["versions"]["torch"] = "1.0"
    other["study"]["seed"] = 77
    path.write_text(json.dumps(other))
    (line,) = refused(bench.ask("resume"))
    assert "was measured with another code, version, machine" in line
    path.write_text(planned)
    (victim,) = bench.record_files()
    victim.write_bytes(victim.read_bytes()[:500])
    (line,) = refused(bench.run(*words))
    assert victim.name in line
    assert "delete it" in line
    report = bench.ask("report", "--full")
    assert report.returncode == 2
    assert victim.name in "".join(report.stdout.split())  # a long path is wrapped


def refused(done):
    """The lines of a mistake."""
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stderr.splitlines()


@pytest.mark.slow
@pytest.mark.any_mpi
def test_an_error_on_a_rank_is_told_with_its_words(bench):
    """An event whose stored bytes are damaged is only found when its turn comes, in the middle of a launch."""
    path = bench.folder / "events.h5"
    with h5py.File(path, "w") as file:
        images = np.random.default_rng(1).random((200, 3, 64, 64), dtype=np.float32)
        data = file.create_dataset("data", data=images, chunks=(1, 3, 64, 64), compression="gzip")
        file["label"] = np.arange(200) % 2
        places = [data.id.get_chunk_info(index) for index in range(20, 180)]
    with path.open("r+b") as file:
        for place in places:
            file.seek(place.byte_offset + 100)
            file.write(b"damaged" * 10)
    done = bench.run("--data", str(path), "--backends", "ring", "--ranks", "2")
    assert done.returncode == 2, done.stdout + done.stderr
    (record,) = bench.records()
    assert record.failure.kind == "error"
    assert record.failure.rank in (0, 1)
    assert "events.h5" in record.failure.message
    assert "\n" not in record.failure.message
    assert record.failure.message in " ".join(done.stdout.split())


def small_disk(bench, size, command):
    """Run `command` with a file system of `size` mounted on the results, in a mount namespace of its own."""
    results = bench.folder / "results"
    results.mkdir(exist_ok=True)
    script = f'mount -t tmpfs -o size={size} tmpfs "{results}" && {command}'
    return subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


@pytest.mark.slow
@pytest.mark.requires("root")
def test_a_full_disk(bench):
    run = " ".join(bench.command("--backends", "none,ring", "--ranks", "1"))
    done = small_disk(bench, "64k", f"{run}; status=$?; ls {bench.folder}/results/*/*/records; exit $status")
    assert done.returncode == 1, done.stdout + done.stderr
    (line,) = done.stderr.splitlines()
    assert "No space left on device" in line
    assert "--results" in line


@pytest.mark.slow
@pytest.mark.requires("root")
def test_a_read_only_results_folder(bench):
    run = " ".join(bench.command())
    done = small_disk(bench, "1m", f'mount -o remount,ro "{bench.folder}/results" && {run}')
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "is not writable: Read-only file system" in line
