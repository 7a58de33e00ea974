"""Whatever is in a file or an option, dlscale says so in one line: 500 damaged inputs for each parser.

A seed makes it the same 500 for everybody. `make test-nightly` runs the same generators with other seeds for as long
as one likes (FUZZ_SECONDS in all), and keeps what was not refused as it should be in `build/fuzz/`.
"""

from __future__ import annotations

import functools
import io
import os
import random
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import resources
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import h5py
import numpy as np
import pytest
import scipy.io
from PIL import Image

from dlscale.analysis.form import parse_width
from dlscale.analysis.published.catalogue import Catalogue, load_published
from dlscale.analysis.published.claims import load_publication
from dlscale.analysis.published.values import read_statements, read_values
from dlscale.base.batch import NAMES, scheduler
from dlscale.base.definitions import load_file
from dlscale.base.errors import UsageError
from dlscale.base.hostlist import expand_hostlist
from dlscale.base.parsing import parse_json, parse_toml
from dlscale.base.quantities import (
    format_seconds,
    parse_counts,
    parse_quantity,
    parse_seconds,
    parse_size,
    parse_sizes,
)
from dlscale.benchmarks.cli.stated_study import study_in
from dlscale.benchmarks.cli.status import _planned
from dlscale.benchmarks.jobs.jobs import JobFiles
from dlscale.benchmarks.launch.causes import who_died
from dlscale.benchmarks.launch.overheads import read_overheads
from dlscale.benchmarks.message_sizes.launch import imb_times
from dlscale.benchmarks.rank.checkpoints import checkpoint_notes, load_checkpoint, save_checkpoint
from dlscale.benchmarks.records.files import (
    BadFile,
    load_parity,
    read_record,
)
from dlscale.benchmarks.records.message_sizes import load_run
from dlscale.benchmarks.records.store import Store
from dlscale.benchmarks.study.axes import read_ladder, read_options, read_step, read_variables
from dlscale.benchmarks.study.study import load_study, read_study_file
from dlscale.benchmarks.study.tuned import read_tuned
from dlscale.benchmarks.systems.lint import lint
from dlscale.benchmarks.systems.probe.slurm import (
    default_partition,
    parse_config,
    parse_nodes,
    parse_partitions,
)
from dlscale.benchmarks.systems.system import load_system
from dlscale.models.cosmogan import WORKLOAD as COSMOGAN
from dlscale.models.cosmogan import data as maps
from dlscale.models.hep_cnn import WORKLOAD as HEP_CNN
from dlscale.models.hep_cnn import data as events
from dlscale.models.images import open_store
from dlscale.models.images.decode import evaluation_image
from dlscale.models.images.tfrecord import frame_record, write_example
from dlscale.models.workload import Input

from .damage import damaged

pytestmark = pytest.mark.requires("lmdb", "google_crc32c")

NUM_CASES = 500
SECONDS = float(os.environ.get("FUZZ_SECONDS", "0"))
GOLDEN = Path(__file__).parents[1] / "golden" / "records"
STUDY = GOLDEN / "servers-3f9de700" / "study.json"
PUBLISHED = Path(__file__).parents[2] / "results" / "published"
SYSTEMS = resources.files("dlscale.benchmarks").joinpath("systems")
STUDIES = resources.files("dlscale.benchmarks").joinpath("study", "studies")
published_of_the_checkout = functools.cache(load_published)


@dataclass(frozen=True, kw_only=True)
class Parser:
    """What reads `content`, once it is in the file `name` of a folder; other files may stand beside it."""

    name: str
    content: Callable[[], bytes]
    read: Callable[[Path], object]
    beside: Callable[[Path], None] = lambda _: None
    num_cases: int = NUM_CASES


def record(path: Path) -> None:
    found = read_record(path)
    if isinstance(found, BadFile):
        raise UsageError(found.reason)


def each(*readers: Callable[[Path], object]) -> Callable[[Path], None]:
    """All of them, whether or not those before refuse the file."""

    def read(path: Path) -> None:
        for reader in readers:
            with suppress(UsageError):
                reader(path)

    return read


def job(path: Path) -> None:
    files = JobFiles(folder=path.parent.parent, name="job-000")
    files.read()
    files.events()


def images(path: Path) -> None:
    for skip_bad in (False, True):
        try:
            store = open_store(path, skip_bad=skip_bad)
        except UsageError:
            continue
        try:
            for index in {0, len(store) // 2, len(store) - 1}:
                try:
                    evaluation_image(store.encoded(index), height=32, width=32)
                except UsageError:
                    continue
        finally:
            store.close()


def training_samples(module, preset, path: Path) -> None:
    for skip_bad in (False, True):
        source = Input(path=path, skip_bad=skip_bad)
        try:
            module.check_input(source, preset)
            samples = module.open_samples(source, preset, seed=(0, 0))
            for index in range(min(len(samples), 2)):
                samples.read(np.array([index]))
        except UsageError:
            continue


def encoded(kind: str) -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (24, 20, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def npy() -> bytes:
    file = io.BytesIO()
    np.save(file, np.zeros((3, 32, 32), np.float32))
    return file.getvalue()


def hdf5() -> bytes:
    file = io.BytesIO()
    with h5py.File(file, "w") as made:
        made.create_dataset(
            "data", data=np.zeros((4, 3, 64, 64), np.float32), chunks=(1, 3, 64, 64), compression=4
        )
        made["label"] = np.arange(4) % 2
    return file.getvalue()


def mat(**variables: object) -> bytes:
    file = io.BytesIO()
    scipy.io.savemat(file, variables, do_compression=True)
    return file.getvalue()


def tfrecords() -> bytes:
    features = {"image/encoded": [encoded("JPEG")], "image/class/label": [1]}
    return b"".join(frame_record(write_example(features)) for _ in range(3))


def lmdb_file() -> bytes:
    import lmdb

    with TemporaryDirectory() as folder:
        with lmdb.open(folder, map_size=1 << 20) as database, database.begin(write=True) as transaction:
            for index in range(3):
                transaction.put(b"%08d" % index, b"\1\0\0\0" + encoded("JPEG"))
            transaction.put(b"__len__", b"3")
            transaction.put(b"__classes__", b"a\nb\n")
        return (Path(folder) / "data.mdb").read_bytes()


def flowers(folder: Path) -> None:
    (folder / "imagelabels.mat").write_bytes(mat(labels=[1, 2, 3]))
    (folder / "setid.mat").write_bytes(mat(trnid=[1, 3], valid=[2], tstid=[2]))


TUNED = b"""study = "tuning-1a2b3c4d"
learning_rates = [0.001, 0.002]
num_seeds = 3
first_seed = 1000001
last_seed = 1000003
max_samples = 54000
max_seconds = 60.0
num_trainings = 6
seconds = 31.5

[[rates]]
learning_rate = 0.002
expected_samples = 9600.0
num_reached = 3

[rates.configuration]
workload = "hep_cnn"
preset = "tiny"
framework = "torch"
num_ranks = 2
global_batch = 32
precision = "fp32"
data = "sample_64.h5:33d1905d50ad"
target = { metric = "auc", threshold = 0.993, held_out = 0.125, scaling = "none" }
"""


def checkpoint() -> bytes:
    with TemporaryDirectory() as folder:
        save_checkpoint(
            Path(folder), {"network0.0": np.ones((2, 3), np.float32)}, step=5, notes='{"step": 5}'
        )
        return next(Path(folder).iterdir()).read_bytes()


def start_times(path: Path) -> None:
    """An estimate at most: what a damaged one gives can still be printed."""
    for seconds in read_overheads(path.parent).values():
        format_seconds(seconds)


def in_a_job(text: str) -> None:
    """What schedulers tell a job by its variables."""
    for name in NAMES:
        for variable in VARIABLES_OF_JOBS:
            commands = scheduler(name)
            with suppress(ValueError, OSError):
                commands.nodes({variable: text})
            commands.end_time({variable: text})
            commands.restarts({variable: text})


def about_jobs(text: str) -> None:
    """What schedulers print about jobs."""
    for name in NAMES:
        scheduler(name).states(text, ["12", "f12"])
        scheduler(name).forgot(text)
        with suppress(ValueError):
            scheduler(name).job_id(text)


def nodes_of_slurm(text: str) -> None:
    parse_config(text)
    parse_partitions(text, parse_nodes(text))
    default_partition(text)


def launches_beside(folder: Path) -> None:
    (folder / "launches").mkdir(exist_ok=True)


def first(pattern: str) -> bytes:
    return sorted(GOLDEN.glob(pattern))[0].read_bytes()


def toml(folder, name: str) -> Callable[[], bytes]:
    return lambda: folder.joinpath(name).read_bytes()


VARIABLES_OF_JOBS = (
    "SLURM_JOB_NODELIST", "SLURM_JOB_END_TIME", "SLURM_RESTART_COUNT", "PBS_NODEFILE", "PBS_JOBID", "COBALT_NODEFILE",
    "COBALT_PARTNAME", "COBALT_ENDTIME", "LSB_DJOB_HOSTFILE", "LSB_RESTART", "_DLSCALE_NODES", "_DLSCALE_END_TIME",
)  # fmt: skip
SCONTROL = """NodeName=nid1 CoresPerSocket=64 CPUTot=256 Gres=gpu:a100:4(S:0-3) RealMemory=51 Sockets=2 Partitions=a,b
PartitionName=a AllocNodes=ALL Default=YES MaxTime=1-00:30:00 DefaultTime=00:30:00 MaxNodes=4 State=UP TotalNodes=2
ClusterName             = cori
"""
JOB = b"""{"schema_version": 1, "index": 0, "num_nodes": 1, "seconds": 60.0, "budget_per_case": 1.0, "launches": []}"""
PARITY = b"""[{"workload": "hep_cnn", "preset": "small", "precision": "fp32", "num_parameters": {"torch": 1},
  "checks": [{"name": "small: loss", "passed": true, "value": 1e-7, "tolerance": 1e-5, "detail": "0.5"}]}]"""
PARSERS = {
    "study": Parser(
        name="x.toml", content=toml(STUDIES, "weak-scaling.toml"), read=lambda p: load_study(str(p))
    ),
    "system": Parser(
        name="x.toml", content=toml(SYSTEMS, "cooley.toml"),
        read=each(lambda p: load_system(str(p)), lambda p: lint(str(p))),
    ),
    "claims": Parser(
        name="x.toml", content=(PUBLISHED / "claims" / "goyal.toml").read_bytes,
        read=lambda p: load_publication(p, published_of_the_checkout()),
    ),
    "study.json": Parser(
        name="study.json", content=STUDY.read_bytes,
        read=each(lambda p: read_study_file(p.parent), lambda p: Store(p.parent).planned(), _planned,
                  lambda p: study_in(p.parent).order, lambda p: study_in(p.parent).variants),
    ),
    "record": Parser(
        name="a.1.json", content=lambda: first("servers-3f9de700/records/*.json"), read=record
    ),
    "parity": Parser(name="parity.json", content=lambda: PARITY, read=lambda p: load_parity(p.parent)),
    "run of message sizes": Parser(
        name="campaign.json",
        content=lambda: first("collectives-*/campaign.json"),
        read=lambda p: load_run(p.parent),
        beside=launches_beside,
    ),
    "launch of message sizes": Parser(
        name="launches/000.json",
        content=lambda: first("collectives-*/launches/*.json"),
        read=lambda p: load_run(p.parent.parent),
        beside=lambda folder: shutil.copy(
            next(GOLDEN.glob("collectives-*/campaign.json")), folder / "campaign.json"
        ),
    ),
    "job": Parser(name="jobs/job-000.json", content=lambda: JOB, read=job),
    "events of a job": Parser(
        name="jobs/job-000.jsonl", content=lambda: b'\n{"event": "end", "time": 1.5}\n' * 3,
        read=lambda p: JobFiles(folder=p.parent.parent, name="job-000").events(),
    ),
    "number of a job": Parser(
        name="jobs/job-000.id", content=lambda: b"1234\n",
        read=lambda p: JobFiles(folder=p.parent.parent, name="job-000").id,
    ),
    "start times": Parser(
        name="launch-overheads.json", content=lambda: b'{"hep_cnn": [3.5], "b": [12.25, 9.5]}', read=start_times
    ),
    "tuned rates": Parser(name="tuned.toml", content=lambda: TUNED, read=read_tuned),
    "checkpoint": Parser(
        name="step-0000000005.safetensors", content=checkpoint,
        read=lambda p: (checkpoint_notes(p.parent, step=5), load_checkpoint(p.parent, step=5)),
    ),
    "published values": Parser(
        name="goyal-table-1.csv", content=(PUBLISHED / "goyal-table-1.csv").read_bytes,
        read=lambda p: read_values(p.parent),
    ),
    "published statements": Parser(
        name="statements.csv", content=(PUBLISHED / "statements.csv").read_bytes,
        read=lambda p: read_statements(p.parent),
    ),
    "published figures": Parser(
        name="figures.toml", content=(PUBLISHED / "figures.toml").read_bytes, read=lambda p: load_file(Catalogue, p)
    ),
    "JPEG": Parser(
        name="a/x.jpg", content=lambda: encoded("JPEG"), read=lambda p: images(p.parent.parent)
    ),
    "PNG": Parser(name="a/x.png", content=lambda: encoded("PNG"), read=lambda p: images(p.parent.parent)),
    "list": Parser(name="x.txt", content=lambda: b"a/b.jpg 1\nc d.png 2\n# x\n\n", read=images),
    "CIFAR-10": Parser(name="data_batch_1.bin", content=lambda: bytes(range(256)) * 37, read=images),
    "labels of Flowers-102": Parser(
        name="imagelabels.mat", content=lambda: mat(labels=[1, 2, 3]), read=lambda p: images(p.parent),
        beside=flowers,
    ),
    "LMDB": Parser(name="lmdb/data.mdb", content=lmdb_file, read=lambda p: images(p.parent)),
    "TFRecord": Parser(name="x.tfrecord", content=tfrecords, read=images),
    "maps": Parser(
        name="x.npy", content=npy, read=lambda p: training_samples(maps, COSMOGAN.preset("tiny"), p)
    ),
    "events": Parser(
        name="x.h5", content=hdf5, read=lambda p: training_samples(events, HEP_CNN.preset("tiny"), p),
        num_cases=25,  # a process each
    ),
}  # fmt: skip
TEXTS: dict[str, tuple[Callable[[str], object], str]] = {
    "JSON": (parse_json, '{"a": [1, {"b": "c"}], "d": 1.5e3, "e": null}'),
    "TOML": (parse_toml, 'a.b.c = 1\n[d]\ne = [{f = "g"}, 2020-01-01]\n'),
    "counts": (parse_counts, "1,2,4:64:x2 7:9"),
    "size": (parse_size, "4KiB"),
    "sizes": (parse_sizes, "4KiB:256MiB:x4,25MiB"),
    "seconds": (parse_seconds, "1.5h"),
    "quantity": (lambda text: parse_quantity(text, "bytes per second"), "200 Gb/s"),
    "options of backends": (read_options, "horovod.cycle_time_ms=0.5 grpc_ps.x=[1]"),
    "values of an axis": (read_options, "horovod.cycle_time_ms=0.5|1|5,grpc_ps.x=a|b"),
    "variables": (read_variables, "MPICH_ASYNC_PROGRESS=0|1 OTHER=x"),
    "step of a ladder": (partial(read_step, backend="ring"), "cycle_time_ms=5,compiled,precision=bf16,X=1"),
    "ladder": (read_ladder, "plain > a=1,b > compiled"),
    "list of hosts": (expand_hostlist, "nid00[001-004,7],x[1-2]-ib"),
    "variables of jobs": (in_a_job, "nid00[001-004,7]"),
    "output of schedulers": (about_jobs, "12 RUNNING\n12.server  x  R\nJob <12> is submitted\n"),
    "output of scontrol": (nodes_of_slurm, SCONTROL),
    "output of IMB": (imb_times, "   4  1000  1.02  2.30  1.55\n"),
    "width": (parse_width, "8.4cm"),
    "output of a launcher": (who_died, "PID 12 RUNNING AT x\nEXIT STRING: Killed (signal 9)\n"),
}


def seeds(num_cases: int = NUM_CASES):
    """Seeds of cases: the same ones in a test, new ones until the time is over in `make test-nightly`."""
    if not SECONDS:
        yield from range(num_cases)
        return
    end = time.monotonic() + SECONDS / (len(PARSERS) + len(TEXTS))
    begin = random.SystemRandom().randrange(10**9, 10**12)
    for number in count():
        if time.monotonic() > end:
            return
        yield begin + number


def refused_in_one_line(
    call: Callable[[], object], kinds: tuple[type[Exception], ...], keep: bytes, name: str
):
    """Whether `call` refused its input; fails where it did so in another way than by one line."""
    try:
        call()
    except kinds as error:
        if "\n" not in str(error) and len(str(error)) < 20_000:
            return True
        problem = f"{len(str(error).splitlines())} lines, {len(str(error))} characters"
    except Exception as error:
        problem = f"{type(error).__name__}: {str(error)[:300]}"
    else:
        return False
    folder = Path("build/fuzz")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name.replace("/", "-")).write_bytes(keep)
    pytest.fail(f"{problem}; the input is in {folder / name.replace('/', '-')}")


@pytest.mark.timeout(0)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PARSERS)
def test_a_damaged_file_is_refused_in_one_line(tmp_path, name):
    parser = PARSERS[name]
    path = tmp_path / parser.name
    path.parent.mkdir(exist_ok=True)
    parser.beside(tmp_path)
    content = parser.content()
    path.write_bytes(content)
    parser.read(path)  # whole, it is not refused
    for seed in seeds(parser.num_cases):
        changed = damaged(content, random.Random(seed))  # noqa: S311
        path.write_bytes(changed)
        refused_in_one_line(partial(parser.read, path), (UsageError,), changed, f"{name}-{seed}")


@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", TEXTS)
def test_a_damaged_text_is_a_value_error(name):
    parse, text = TEXTS[name]
    parse(text)
    for seed in seeds():
        changed = damaged(text.encode(), random.Random(seed))  # noqa: S311
        words = changed.decode("utf-8", "surrogateescape")
        refused_in_one_line(partial(parse, words), (ValueError, UsageError), changed, f"{name}-{seed}")
