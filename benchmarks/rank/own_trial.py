"""Trains a user's file for some steps as launches would, before a study begins: run in a process of its own.

    python -m dlscale.benchmarks.rank.own_trial FILE     prints an `Answer` in one line

A trainer without exchange takes the steps, by flat views of the weights; a second replica takes each of them again from
the state before it, as gates and audits do, with weights of their own shapes. What differs is said by its cause.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from dlscale.base.errors import UsageError
from dlscale.benchmarks.rank.deviation import EXACT, deviation, noisy_weights, snapshot
from dlscale.collectives.none import NoneBackend
from dlscale.models.own import PRESET, FilePlace, OwnModel, own_workload
from dlscale.models.own.data import read_good
from dlscale.models.own.facts import Answer, read_facts
from dlscale.models.own.file import SAME, UNREPEATABLE, load_file
from dlscale.models.workload import SYNTHETIC, Shard

SEED = 20260101
NUM_STEPS = 3  # the first makes what optimizers keep
NUM_JUDGED = 256  # samples that metrics are tried on


def main() -> None:
    """Print the facts of the file that the command line names, or what is wrong."""
    path = Path(sys.argv[1])
    out = os.dup(1)
    os.dup2(2, 1)  # what the file prints is not the answer
    try:
        answer = Answer(model=checked(path))
    except UsageError as error:
        answer = Answer(problem=str(error))
    with os.fdopen(out, "w") as stream:
        stream.write(answer.model_dump_json() + "\n")
    sys.stdout.flush()
    os._exit(0)  # taking a framework's interpreter down takes as long as a start


def checked(path: Path) -> OwnModel:
    """The facts of a file, of which some steps were taken. Raises UsageError for whatever is wrong with it."""
    place = FilePlace(path, path.absolute())
    own = load_file(place)
    model: OwnModel = own.run(lambda: read_facts(path), what="a first step")
    own.run(lambda: try_steps(model, place), what="a training step")
    return model


def try_steps(model: OwnModel, place: FilePlace) -> None:
    """Returns if steps of the file train, and can be taken again. Raises UsageError."""
    own = load_file(place)
    workload = own_workload(model, place)
    make = workload.factory(
        framework=model.framework,
        preset=PRESET,
        local_batch=model.local_batch,
        # What is left out of a batch is in no state, so that steps with bad samples cannot be taken again.
        source=workload.input(PRESET, SYNTHETIC if model.bad_sample else None),
    )
    trainer = own.run(
        lambda: NoneBackend().distribute(make, shard=Shard(), seed=SEED), what="making a trainer of it"
    )
    reference = make(shard=Shard(), seed=SEED)
    nothing = [np.zeros_like(weight) for weight in reference.weights()]
    own.run(lambda: reference.apply(nothing), what="a step of the optimizer")  # makes what it keeps
    for _ in range(NUM_STEPS):
        before, state = snapshot(trainer.weights(), trainer.state()), trainer.state()
        own.run(trainer.step, what="a training step")
        after = snapshot(trainer.weights(), trainer.state())
        reference.restore(state)
        gradients = own.run(reference.gradients, what="a training step")
        if not np.allclose(trainer.losses(), reference.losses(), rtol=SAME, equal_nan=True):
            remedy = "see that it keeps nothing from step to step but weights and buffers"
            raise UsageError(UNREPEATABLE.format(file=own.name, remedy=remedy))
        reference.apply(gradients)
        expected = snapshot(reference.weights(), reference.state())
        noisy = noisy_weights(gradients, bounds=EXACT)
        found = deviation(before, after, expected, bounds=EXACT, noisy=noisy)
        if found.share > EXACT.share or found.scale > EXACT.scale:
            raise UsageError(
                f"{own.name}: {model.optimizer} changes weights otherwise when a step is taken again from the same "
                "state, with flat tensors, as trainers give them; choose one that treats all elements of a tensor "
                "alike, draws nothing and keeps what it counts in its state, such as SGD, Adam, AdamW, RMSprop or "
                "Adagrad"
            )
    _try_metrics(model, place, reference)


def _try_metrics(model: OwnModel, place: FilePlace, replica: Any) -> None:
    """Raises UsageError for a metric that does not give a number."""
    workload = own_workload(model, place)
    samples = workload.data().open_samples(
        workload.input(PRESET, skip_bad=True), workload.preset(), seed=(0, 0)
    )
    quality = workload.quality()
    arrays, _ = read_good(samples, NUM_JUDGED)
    quality.metrics(quality.measure(replica.predict, *arrays))


if __name__ == "__main__":
    main()
