"""Finds out what a user's file is and has: the file is run, its network built, and one training step computed.

It imports a framework, so it is done in a process of its own, which then trains a few steps
(`benchmarks/rank/own_trial.py`).
"""

from __future__ import annotations

import importlib
import re
import sys
import time
import unicodedata
from pathlib import Path
from typing import Any

from dlscale.base.definitions import Frozen
from dlscale.base.errors import UsageError
from dlscale.base.strings import Text
from dlscale.models.frameworks import FRAMEWORKS
from dlscale.models.own import SUFFIX, FilePlace, OwnModel
from dlscale.models.own.data import OwnSamples, data_digest, read_good
from dlscale.models.own.file import OwnFile, load_file
from dlscale.models.own.sources import ArraySource, Source, open_source, read_source

LOCAL_BATCH = 32
NUM_SCHEDULED = 100  # steps that a schedule is asked for
MOST_SECONDS = 1.0  # that data() and the digest of its samples may take, for both to be done a second time
MODULES = {
    "torch": "torch",
    "tensorflow": "keras",
}  # what is imported once a network of the framework was made


class Answer(Frozen):
    """The facts of a file, or why it has none, in one line."""

    model: OwnModel | None = None
    problem: Text = ""


def read_facts(path: Path) -> OwnModel:
    """The facts of that file. Raises UsageError for whatever is wrong with it."""
    own = load_file(FilePlace(path, path.absolute()))
    framework = _framework(own)
    module = importlib.import_module(f"dlscale.models.own._{framework}")
    begun = time.monotonic()
    source = open_source(own, framework, examined=True)
    local_batch = own.number("local_batch", min(LOCAL_BATCH, len(source)))
    if len(source) < local_batch:
        raise UsageError(
            f"{own.name}: data() has {len(source)} samples, fewer than one local batch of {local_batch}; give more, or "
            "write a smaller local_batch into the file"
        )
    digest = data_digest(source, own, framework=framework)
    again = time.monotonic() - begun < MOST_SECONDS
    _check_repeats(own, source, digest, framework=framework, again=again)
    batch, problem = read_good(OwnSamples(source, own, framework=framework, seed=(0, 0)), local_batch)
    for step in range(NUM_SCHEDULED):
        if own.schedule:
            own.schedule(step)
    found = module.facts(own, batch)
    if own.clip_norm:
        found["whole_tensors"] = f"clip_norm={own.clip_norm:g} needs the norm of all gradients"
    return OwnModel(
        file=safe_name(own.name),
        digest=own.digest,
        framework=framework,
        input_shape=list(batch[0].shape[1:]),
        local_batch=local_batch,
        global_batch=own.number("global_batch", 4 * local_batch),
        num_samples=len(source),
        metrics=_metrics(own, num_classes=found["num_classes"]),
        clip_norm=own.clip_norm,
        scheduled=own.schedule is not None,
        bad_sample=source.problem or problem,
        data=f"{safe_name(own.name)}:{digest}",
        unchecked=_unchecked(found, in_memory=isinstance(source, ArraySource)),
        **found,
    )


def safe_name(name: str) -> str:
    """A file's name as it can name a folder and a workload: without accents and blanks."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    stem = re.sub(r"[^A-Za-z0-9._-]+", "_", plain.removesuffix(SUFFIX)).lstrip("._-")[:80]
    return f"{stem or 'model'}{SUFFIX}"


def _check_repeats(own: OwnFile, source: Source, digest: str, *, framework: str, again: bool) -> None:
    """Raises UsageError if the samples are others when they are read, or made `again`; launches compare them, too."""
    if data_digest(source, own, framework=framework) != digest:
        raise UsageError(
            f"{own.name}: data() gives other samples when they are read again; draw with the global generators of "
            "torch, NumPy or Python, which are seeded for every batch, or with none"
        )
    if not (isinstance(source, ArraySource) and again):
        return
    if data_digest(read_source(own, framework), own, framework=framework) != digest:
        raise UsageError(
            f"{own.where('data')}: data() gives other samples when it is called again; seed what it draws, as in "
            "numpy.random.default_rng(0)"
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
