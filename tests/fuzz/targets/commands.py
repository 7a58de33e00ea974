"""Values of options on whole command lines. None of them starts or writes anything."""

import contextlib
import io
import json
import os
import random
from pathlib import Path

from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import main
from tests.fuzz.damage import damaged
from tests.fuzz.target import Target

STATUSES = (0, 2, 3, 4)
WORDS = "words.json"


def run(words: list[str]) -> str:
    """What a command line prints. Raises UsageError with what it says where it refuses its options or files."""
    output, complaints = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(complaints):
        try:
            main(words)
        except SystemExit as ended:
            status = ended.code or 0
    said = complaints.getvalue()
    if "Traceback" in said:
        raise AssertionError(said[-300:])
    if status == 1:
        raise UsageError(said.rstrip("\n").rpartition("\n")[2])
    if status not in STATUSES:
        raise AssertionError(f"exit status {status}: {said[-300:]}")
    return output.getvalue()


PLANNED = (
    "workloads=hep_cnn", "frameworks=torch,tensorflow", "backends=none,ring", "ring.teams=1|2", "preset=tiny",
    "horovod.cycle_time_ms=0.5|1", "algorithms=sync,easgd", "easgd.interval=1|8", "servers=1,2", "batch=16|32",
    "precision=fp32|bf16", "compiled=no|yes", "device=cpu", "skip_bad=yes",
    "ranks=1:2", "base=1", "launches=6", "budget=4min", "controls=synthetic,loader", "reference_launches=1",
    "seed=1", "MPICH_ASYNC_PROGRESS=0|1", "target=auc=0.95", "rules.warmup_steps=3",
    "rules.min_windows=10", "rules.min_window_seconds=0.15", "rules.min_steps=20",
    "rules.max_steps=2000", "rules.checkpoint_every=10",
    "target.held_out=0.125", "target.evaluate_samples=640",
    "target.max_seconds=60", "target.max_samples=5000", "target.learning_rate=0.001|0.002",
    "target.learning_rate_scaling=linear", "target.warm_up_samples=100", "target.decay_samples=100,200",
    "target.optimizer=sgd", "target.momentum=0.9", "system=local", "environment=.venv", "data=synthetic",
    "account=m1759", "walltime=30min", "max_node_hours=10.5", "results=results", "nodes=1,2",
    "ranks_per_node=2", "partition=debug", "allow_open_ports=no", "backend_options=ring.teams=2",
)  # fmt: skip
STUDIES = (
    "weak-scaling",
    "strong-scaling",
    "time-to-solution",
    "algorithms",
    "frameworks",
)
SYSTEMS = ("local", "cori")
FIXED = (
    "predict weak-scaling --system cori --backends ring --nodes 1:64:x2 --set batch=16 --json",
    "predict strong-scaling --system cori --backends grpc_ps --nodes 1:8:x2 --set servers=1:1 --json",
    "predict weak-scaling --system cori --set preset=small --json",
    "system show cori", "status --results results", "report weak-scaling --results results",
    "compare a b --by backend,framework --ranks 2,4", "doctor --help", "new --help",
    "figures --published goyal-8 --for paper",
    "figures --published --check powerai-ddl-2 --on cori",
    "proposal --threshold 80 --samples 115305030 --runs 5 --results results",
    "data hep_cnn --preset tiny", "collectives report --results results", "nosuch", "export --format parquet",
)  # fmt: skip


def damage(folder: Path, choice: random.Random) -> None:
    """A command line with a value or two damaged."""
    if choice.random() < 0.75:
        words = ["run", choice.choice(STUDIES), "--dry-run", "--set", f"system={choice.choice(SYSTEMS)}"]
        for _ in range(choice.choice([1, 1, 2, 3])):
            name, equals, value = choice.choice(PLANNED).partition("=")
            if choice.random() < 0.7:
                value = _damaged(value, choice)
            words += ["--set", f"{name}{equals}{value}"]
        if choice.random() < 0.1:
            words[-1] = _damaged(words[-1], choice)
    else:
        words = choice.choice(FIXED).split()
        place = choice.randrange(len(words))
        words[place] = _damaged(words[place], choice)
    (folder / WORDS).write_text(json.dumps(words))


def _damaged(word: str, choice: random.Random) -> str:
    """As a shell would pass it: no zeros."""
    return os.fsdecode(damaged(os.fsencode(word), choice).replace(b"\0", b""))


def command_line(folder: Path) -> None:
    """Run it from the folder of the input."""
    with contextlib.chdir(folder):
        run(json.loads((folder / WORDS).read_text()))


TARGETS: dict[str, Target] = {
    "command line": Target(
        make=lambda folder: (folder / WORDS).write_text('["run", "weak-scaling", "--dry-run"]'),
        read=command_line, damage=damage, share=2.0, seconds=20.0,
    ),
}  # fmt: skip
