"""What a training to a target costs beside a plain loop of the same steps, evaluations and end.

    python tests/benchmark/target_cost.py --pairs 8        prints the ratio of CPU times, with its interval

HEP-CNN learns in torch on one rank and one thread until AUC 0.99, once as in a study (windows with their barrier, the
spool, evaluations on a second replica that is given the trained one's state, all metrics), and once as a script would:
steps, the network's own predictions, the one metric. Both end after the same step. Allowed is 1 % more.
"""

import argparse
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1")

import numpy as np
from mpi4py import MPI

from dlscale.analysis.statistics import block_ratio
from dlscale.benchmarks.rank.measure import MpiBarrierControl
from dlscale.benchmarks.rank.solution import Evaluator, TargetTraining
from dlscale.benchmarks.records.record import Cell
from dlscale.benchmarks.records.spool import SpoolWriter
from dlscale.benchmarks.records.target import Target
from dlscale.collectives.registry import connect
from dlscale.models import load_workload
from dlscale.models.frameworks import framework_module
from dlscale.models.held_out import held_out_samples
from dlscale.models.hep_cnn.quality import roc_curve, signal_score
from dlscale.models.quality.metric import PIECE
from dlscale.models.workload import Execution, Shard

BATCH, SEED, AUC, EVERY, HELD_OUT, RATE = 16, 3, 0.99, 240, 0.125, 1e-3
ALLOWED = 1.01

FACTS = load_workload("hep_cnn")
SOURCE = replace(FACTS.input("tiny"), held_out=HELD_OUT, order=SEED)


def distribute():
    """A trainer of a new replica."""
    factory = FACTS.factory(
        framework="torch",
        preset="tiny",
        local_batch=BATCH,
        source=SOURCE,
        execution=Execution(learning_rate=RATE),
    )
    backend = connect("none", control=MPI.COMM_SELF, framework="torch", options={})
    replicas = []

    def make(**given):
        replicas.append(factory(**given))
        return replicas[-1]

    return backend.distribute(make, shard=Shard(), seed=SEED), replicas[0], factory


def as_in_a_study(folder: Path) -> tuple[int, float]:
    """(steps, CPU seconds) of `TargetTraining`, its evaluator included."""
    trainer, trained, factory = distribute()
    target = Target(
        metric="auc",
        threshold=AUC,
        held_out=HELD_OUT,
        evaluate_every=EVERY,
        max_seconds=600.0,
        learning_rate=RATE,
    )
    cell = Cell(
        workload="hep_cnn",
        preset="tiny",
        framework="torch",
        backend="none",
        num_ranks=1,
        num_nodes=1,
        local_batch=BATCH,
        global_batch=BATCH,
        cores_per_rank=1,
        scaling_mode="weak",
        environment=".venv",
        threads_per_rank=1,
        precision="fp32",
        data="events:0",
        target=target,
    )
    folder.mkdir()
    spool = SpoolWriter(folder, 0)
    steps = []

    def write(event):
        steps.extend([event.step] if hasattr(event, "step") else [])
        spool.write(event, case=0)

    begin = time.process_time()
    replica = factory(shard=Shard(), seed=SEED)
    evaluator = Evaluator(cell, SOURCE, replica, world=MPI.COMM_WORLD, shard=Shard())
    TargetTraining(
        cell=cell,
        target=target,
        trainer=trainer,
        replica=trained,
        control=MpiBarrierControl(MPI.COMM_WORLD),
        world=MPI.COMM_WORLD,
        evaluator=evaluator,
        emit=lambda window: spool.write(window, case=0),
        write=write,
        set_up_seconds=0.0,
    ).run()
    seconds = time.process_time() - begin
    spool.close()
    return steps[-1], seconds


def plain() -> tuple[int, float]:
    """(steps, CPU seconds) of a loop."""
    trainer, replica, _ = distribute()
    begin = time.process_time()
    samples = FACTS.data().open_samples(SOURCE, FACTS.preset("tiny"), seed=(0, 0))
    images, labels = samples.read(held_out_samples(len(samples), share=HELD_OUT))
    step, auc = 0, 0.0
    while auc < AUC:
        for _ in range(EVERY):
            trainer.step()
        step += EVERY
        pieces = [images[at : at + PIECE] for at in range(0, len(images), PIECE)]
        auc = roc_curve(
            np.concatenate([signal_score(replica.predict(piece)) for piece in pieces]), labels
        ).auc
    return step, time.process_time() - begin


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=8)
    num_pairs = parser.parse_args().pairs
    framework_module("torch").prepare(1)
    found: tuple[dict[int, float], dict[int, float]] = ({}, {})
    with tempfile.TemporaryDirectory() as folder:
        plain()  # the first training pays for what is made once
        for pair in range(num_pairs):
            ways = ((0, lambda pair=pair: as_in_a_study(Path(folder) / str(pair))), (1, plain))
            steps = set()
            for place, way in ways if pair % 2 else ways[::-1]:
                step, found[place][pair] = way()
                steps.add(step)
            if len(steps) > 1:
                raise SystemExit(f"the two ways ended after different steps: {steps}")
            print(f"{steps.pop()} steps: {found[0][pair]:.3f} s in a study, {found[1][pair]:.3f} s plainly")
    ratio = block_ratio(*found)
    print(f"in a study over plainly: {ratio.center:.4f} [{ratio.low:.4f}, {ratio.high:.4f}]")
    return int(ratio.low > ALLOWED)


if __name__ == "__main__":
    sys.exit(main())
