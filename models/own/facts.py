"""Finds out what a user's file is and has: run in a process of its own, for it imports a framework.

    python -m dlscale.models.own.facts FILE     prints an `Answer` in one line

The file is run, its network built, and one training step computed, so that most mistakes are seen before a launch.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from dlscale.base.definitions import Frozen
from dlscale.base.errors import UsageError
from dlscale.models.frameworks import FRAMEWORKS
from dlscale.models.own import FilePlace, OwnModel
from dlscale.models.own.data import ArraySource, OwnSamples, data_digest, open_source
from dlscale.models.own.file import OwnFile, load_file

LOCAL_BATCH = 32
MODULES = {
    "torch": "torch",
    "tensorflow": "keras",
}  # what is imported once a network of the framework was made


class Answer(Frozen):
    """The facts of a file, or why it has none, in one line."""

    model: OwnModel | None = None
    problem: str = ""


def read_facts(path: Path) -> OwnModel:
    """The facts of that file. Raises UsageError for whatever is wrong with it."""
    own = load_file(FilePlace(path, path.absolute()))
    framework = _framework(own)
    module = importlib.import_module(f"dlscale.models.own._{framework}")
    source = open_source(own, framework)
    local_batch = own.number("local_batch", min(LOCAL_BATCH, len(source)))
    if len(source) < local_batch:
        raise UsageError(
            f"{own.name}: data() has {len(source)} samples, fewer than one local batch of {local_batch}; give more, or "
            "write a smaller local_batch into the file"
        )
    digest = data_digest(source, own, framework=framework)
    if data_digest(source, own, framework=framework) != digest:
        raise UsageError(
            f"{own.name}: data() gives other samples when they are read again; draw with the global generators of "
            "torch, NumPy or Python, which are seeded for every batch, or with none"
        )
    samples = OwnSamples(source, own, framework=framework, seed=(0, 0))
    batch = samples.read(np.arange(local_batch))
    found = module.facts(own, batch)
    return OwnModel(
        file=own.name,
        digest=own.digest,
        framework=framework,
        input_shape=list(batch[0].shape[1:]),
        local_batch=local_batch,
        global_batch=own.number("global_batch", 4 * local_batch),
        num_samples=len(source),
        metrics=_metrics(own, num_classes=found["num_classes"]),
        data=f"{own.name}:{digest}",
        unchecked=_unchecked(found, in_memory=isinstance(source, ArraySource)),
        **found,
    )


def _framework(own: OwnFile) -> str:
    """The one that the network is written in; no other is imported."""
    made = own.call("model")
    for framework in FRAMEWORKS:
        if MODULES[framework] not in sys.modules:
            continue
        if importlib.import_module(f"dlscale.models.own._{framework}").is_network(made):
            return framework
    raise UsageError(
        f"{own.name}: model() returned a {type(made).__name__}; return a torch.nn.Module or a keras.Model"
    )


def _metrics(own: OwnFile, *, num_classes: int) -> dict[str, bool]:
    """The file's own first; accuracy where there are classes; the loss always."""
    found = {name: name not in own.lower_is_better for name in own.metrics}
    if num_classes:
        found.setdefault("accuracy", True)
    found.setdefault("loss", False)
    return found


def _unchecked(found: dict[str, Any], *, in_memory: bool) -> str:
    """What the gates of the shipped workloads prove and cannot here."""
    parts = ["no second framework to compare with"]
    known = "parameters and operations" if found["forward_flops_per_sample"] else "parameters"
    parts.append(f"{known} are as counted, no source states them")
    if in_memory:
        parts.append("all samples are in memory, so that no step has the time of making them")
    if found["random"]:
        parts.append("the network draws random numbers of its own, seeded at every step")
    return "; ".join(parts)


def main() -> None:
    """Print the facts of the file that the command line names, or what is wrong."""
    out = os.dup(1)
    os.dup2(2, 1)  # what the file prints is not the answer
    try:
        answer = Answer(model=read_facts(Path(sys.argv[1])))
    except UsageError as error:
        answer = Answer(problem=str(error))
    with os.fdopen(out, "w") as stream:
        stream.write(answer.model_dump_json() + "\n")
    sys.stdout.flush()
    os._exit(0)  # taking a framework's interpreter down takes as long as a start


if __name__ == "__main__":
    main()
