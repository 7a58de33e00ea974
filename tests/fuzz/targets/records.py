"""Files that dlscale writes and reads again, by itself, from somebody else, or from another version."""

import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli.study_report import stated
from dlscale.benchmarks.jobs.jobs import JobFiles
from dlscale.benchmarks.launch.supervisor import METADATA_FILE, collect_leftovers
from dlscale.benchmarks.rank.checkpoints import load_checkpoint, save_checkpoint
from dlscale.benchmarks.records.cell import Case
from dlscale.benchmarks.records.message_sizes import load_run
from dlscale.benchmarks.records.prediction import read_predictions
from dlscale.benchmarks.records.record import Ended, EnergyReading, Evaluation, NodeSettings, Record
from dlscale.benchmarks.records.spool import (
    SPEC_FILE,
    Abort,
    CaseEnd,
    CaseResult,
    Checkpoint,
    Gate,
    MeasuredWindow,
    Phase,
    RankEnd,
    Resumption,
    SpoolWriter,
)
from dlscale.benchmarks.records.store import BadFile, Store, read_record
from dlscale.benchmarks.study.study import read_study_file
from tests.analysis.made_predictions import prediction
from tests.benchmarks.spools import launch_spec, leave_launch, metadata_of, rank_info
from tests.fuzz.damage import damaged
from tests.fuzz.target import GOLDEN, Target, file_target
from tests.made_records import NODE, TARGET, make_record, profile_record, solved

STUDY = GOLDEN / "servers-3f9de700"
RUN = next(GOLDEN.glob("collectives-*"))
NUM_RANKS = 2


def each(*readers: Callable[[Path], object]) -> Callable[[Path], None]:
    """All of them, whether or not those before refuse the file."""

    def read(path: Path) -> None:
        for reader in readers:
            with suppress(UsageError):
                reader(path)

    return read


def record(path: Path) -> None:
    """A record, and what is computed of it when it is first used."""
    found = read_record(path)
    if isinstance(found, BadFile):
        raise UsageError(found.reason)
    assert found.case.id
    assert found.windows.world is not None
    assert found.counted.world is not None
    assert found.windows.foreign_share is None or isinstance(found.windows.foreign_share, float)
    with suppress(UsageError):
        assert found.case.cell.facts


def written(made: Record) -> Callable[[], bytes]:
    """The file of a record, which has fields that the stored ones have not."""
    return lambda: made.model_dump_json().encode()


def golden(pattern: str) -> Callable[[], bytes]:
    """The first stored file of that name."""
    return lambda: sorted(GOLDEN.glob(pattern))[0].read_bytes()


def job_files(path: Path) -> JobFiles:
    """The files of the job that has the file `path`."""
    return JobFiles(folder=path.parent.parent, name="job-000")


def checkpoint() -> bytes:
    """A saved state."""
    with TemporaryDirectory() as folder:
        weights = {"network0.0": np.ones((2, 3), np.float32)}
        save_checkpoint(Path(folder), weights, step=5, notes='{"step": 5}')
        return next(Path(folder).iterdir()).read_bytes()


def leave_spools(folder: Path) -> None:
    """A study's folder where a dlscale was killed while two ranks of a launch ran."""
    made = make_record(num_ranks=NUM_RANKS)
    target = Case(cell=make_record(num_ranks=NUM_RANKS, target=TARGET).case.cell, block=0, position=0)
    store = Store(folder)
    store.open({"launches": []})
    spool = store.spool_folder / made.case.id
    leave_launch(spool, launch_spec(made.case, target), metadata_of(made))
    (spool / "output.log").write_text("PID 12 RUNNING AT x\nEXIT STRING: Killed (signal 9)\n")
    for rank in range(NUM_RANKS):
        _write_spool(SpoolWriter(spool, rank), rank)


def _write_spool(spool: SpoolWriter, rank: int) -> None:
    spool.write(rank_info(rank))
    spool.write(NODE_SETTINGS)
    for name in ("start_up", "import_backend", "connect", "gates"):
        spool.write(Phase(name=name, seconds=1.0))
    spool.write(Gate(name="gradient", passed=True, value=0.0, tolerance=1e-4, detail="change"))
    for case in range(2):
        for number in range(4):
            spool.write(
                MeasuredWindow(
                    phase="warmup" if number < 1 else "steady",
                    num_steps=2,
                    start=1.0 + number,
                    seconds=0.5,
                    step_seconds=[0.25, 0.25],
                    bucket_seconds=[0.1, 0.1, 0.1],
                    foreign_cpu=0.01,
                ),
                case=case,
            )
        spool.write(EnergyReading(source="rapl", joules=10.0, seconds=2.0), case=case)
        spool.write(CaseResult(steady=True, settings={"overlap": True}), case=case)
        if case:
            spool.write(Resumption(step=2, seconds=0.1), case=case)
            spool.write(Checkpoint(step=4, seconds=0.1, num_bytes=100), case=case)
            spool.write(EVALUATION, case=case)
            spool.write(Ended(end="reached", set_up_seconds=1.0), case=case)
        spool.write(CaseEnd(peak_rss_bytes=10**8, load=2.5), case=case)
    spool.write(Abort(time=1.0))
    spool.write(RankEnd(status=0))
    spool.close()


NODE_SETTINGS = NodeSettings(**NODE.model_dump(exclude={"node", "load_after"}))
EVALUATION = Evaluation(
    samples=96, training_seconds=2.0, evaluating_seconds=0.1, loss=0.5, metrics={"auc": 0.95}, step=10
)


def collect(folder: Path) -> None:
    """What the next dlscale makes of spools that were left: records, each of which it can read again."""
    store = Store(folder)
    if not store.spool_folder.is_dir():
        raise UsageError("no spools")
    collect_leftovers(store.spool_folder, store, planned=os.listdir(store.spool_folder))
    store.load()


def damage_spools(folder: Path, choice: random.Random) -> None:
    """One of the files of the launch."""
    (spool,) = (folder / "spool").iterdir()
    names = [
        "rank-00000.jsonl",
        "rank-00001.jsonl",
        "rank-00001.jsonl",
        SPEC_FILE,
        METADATA_FILE,
        "output.log",
    ]
    path = spool / choice.choice(names)
    path.write_bytes(damaged(path.read_bytes(), choice))


JOB = b"""{"schema_version": 1, "index": 0, "num_nodes": 1, "seconds": 60.0, "budget_per_case": 1.0, "launches": []}"""
EVENTS = b'{"event": "begin", "nodes": 2, "time": 0.5}\n{"event": "end", "reason": "done", "time": 1.5}\n' * 2


def predictions() -> bytes:
    """Three records of predictions."""
    return "".join(f"{prediction(num_ranks=count).model_dump_json()}\n" for count in (1, 2, 4)).encode()


TARGETS: dict[str, Target] = {
    "study.json": file_target(
        "study.json", (STUDY / "study.json").read_bytes,
        each(lambda p: read_study_file(p.parent), lambda p: Store(p.parent).planned(),
             lambda p: stated(p.parent)),
    ),
    "record": file_target("a.1.json", golden("servers-3f9de700/records/*.json"), record, share=2.0),
    "record of a profile": file_target("a.1.json", written(profile_record()), record),
    "record of a target": file_target(
        "a.1.json",
        written(solved(make_record(num_ranks=2, target=TARGET), {"step": 10, "seconds": 1.0, "auc": 0.95})),
        record,
    ),
    "spools": Target(make=leave_spools, read=collect, damage=damage_spools, share=2.0),
    "run of message sizes": file_target(
        "campaign.json", (RUN / "campaign.json").read_bytes, lambda p: load_run(p.parent),
        beside=lambda folder: (folder / "launches").mkdir(),
    ),
    "launch of message sizes": file_target(
        "launches/000.json", golden("collectives-*/launches/*.json"), lambda p: load_run(p.parent.parent),
        beside=lambda folder: shutil.copy(RUN / "campaign.json", folder),
    ),
    "job": file_target("jobs/job-000.json", lambda: JOB, lambda p: job_files(p).read(), share=0.5),
    "events of a job": file_target(
        "jobs/job-000.jsonl", lambda: EVENTS, lambda p: (job_files(p).last_event(), job_files(p).end_reason), share=0.5,
    ),
    "number of a job": file_target("jobs/job-000.id", lambda: b"1234\n", lambda p: job_files(p).id, share=0.2),
    "checkpoint": file_target(
        "step-0000000005.safetensors", checkpoint,
        lambda p: load_checkpoint(p.parent, step=5),
    ),
    "predictions": file_target("a.jsonl", predictions, read_predictions),
}  # fmt: skip
