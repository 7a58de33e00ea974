"""Finds out what a user's file is and has: the file is run, its network built, and some training steps computed.

It imports a framework, so it is done in a process of its own, which then trains a step of a backend
(`benchmarks/rank/own_trial.py`).
"""

from __future__ import annotations

import importlib
import re
import sys
import time
import unicodedata
import warnings
from pathlib import Path
from typing import Any

from dlscale.base.definitions import Frozen
from dlscale.base.strings import Text
from dlscale.models.own.data import ArraySource, Source, data_digest, open_source, read_good, read_source
from dlscale.models.own.file import OwnFile, load_file
from dlscale.models.own.model import SUFFIX, FilePlace, OwnModel

LOCAL_BATCH = 32
NUM_SCHEDULED = 100  # steps that a schedule is asked for
MOST_SECONDS = 1.0  # that data() and the digest of its samples may take, for both to be done a second time
MOST_WARNINGS = 3
MODULES = {"torch": "torch", "tensorflow": "keras"}  # imported once a network of the framework was made


class Answer(Frozen):
    """The facts of a file, or why it has none, in one line."""

    model: OwnModel | None = None
    problem: Text = ""


def read_facts(path: Path) -> OwnModel:
    """The facts of that file. Raises UsageError for whatever is wrong with it."""
    own = load_file(FilePlace(path, path.absolute()))
    model: OwnModel = own.run(lambda: _facts(own), what="a first step")
    return model


def _facts(own: OwnFile) -> OwnModel:
    made = own.call("model")
    imported = [framework for framework, module in MODULES.items() if module in sys.modules]
    modules = {name: importlib.import_module(f"dlscale.models.own._{name}") for name in imported}
    framework = next((name for name, module in modules.items() if module.is_network(made)), None)
    if framework is None:
        raise own.wrong(
            f"model() returned a {type(made).__name__}; return a torch.nn.Module or a keras.Model", at="model"
        )
    begun = time.monotonic()
    source = open_source(own)
    local_batch = own.number("local_batch", min(LOCAL_BATCH, len(source)))
    if len(source) < local_batch:
        raise own.wrong(
            f"data() has {len(source)} samples, fewer than one local batch of {local_batch}; give more, or write a "
            "smaller local_batch into the file",
            at="data",
        )
    digest = data_digest(source)
    _check_repeats(own, source, digest, again=time.monotonic() - begun < MOST_SECONDS)
    batch, problem = read_good(source, local_batch)
    in_memory = isinstance(source, ArraySource)
    problem = source.first_bad() if isinstance(source, ArraySource) else problem
    for step in range(NUM_SCHEDULED):
        if own.schedule:
            own.schedule(step)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = modules[framework].facts(own, batch)
    texts = [" ".join(str(one.message).split()) for one in caught if issubclass(one.category, UserWarning)]
    if own.clip_norm:
        found["whole_tensors"] = f"clip_norm={own.clip_norm:g} needs the norm of all gradients"
    file = safe_name(own.name)
    return OwnModel(
        file=file,
        digest=own.digest,
        framework=framework,
        input_shape=list(batch[0].shape[1:]),
        local_batch=local_batch,
        global_batch=own.number("global_batch", 4 * local_batch),
        num_samples=len(source),
        metrics=_metrics(own, num_classes=found["num_classes"]),
        clip_norm=own.clip_norm,
        scheduled=own.schedule is not None,
        bad_sample=problem,
        data=f"{file}:{digest}",
        unchecked=_unchecked(found, in_memory=in_memory),
        warned="; ".join(list(dict.fromkeys(texts))[:MOST_WARNINGS]),
        **found,
    )


def safe_name(name: str) -> str:
    """A file's name as it can name a folder and a workload: without accents and blanks."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    stem = re.sub(r"[^A-Za-z0-9._-]+", "_", plain.removesuffix(SUFFIX)).lstrip("._-")[:80]
    return f"{stem or 'model'}{SUFFIX}"


def _check_repeats(own: OwnFile, source: Source, digest: str, *, again: bool) -> None:
    """Raises UsageError if the samples are others when they are read, or made `again`; launches compare them, too."""
    if data_digest(read_source(own) if again else source) != digest:
        raise own.wrong(
            "data() gives other samples when they are read again; seed what it draws, as in default_rng(0), or draw "
            "with the global generators of torch, NumPy or Python, which are seeded for every batch",
            at="data",
        )


def _metrics(own: OwnFile, *, num_classes: int) -> dict[str, bool]:
    """The file's own first; accuracy where there are classes; the loss always."""
    found = {name: name not in own.lower_is_better for name in own.metrics}
    if num_classes:
        found.setdefault("accuracy", True)
    found.setdefault("loss", False)
    return found


def _unchecked(found: dict[str, Any], *, in_memory: bool) -> str:
    """What the gates of the shipped workloads prove and cannot here, and what is not the user's own script."""
    known = "parameters and operations" if found["forward_flops_per_sample"] else "parameters"
    parts = [
        "trained by dlscale's loop, which may be faster than the file's own script",
        "no second framework to compare with",
        f"{known} are as counted, no source states them",
    ]
    if in_memory:
        parts.append("all samples are in memory, so that no step has the time of making them")
    if found["random"]:
        parts.append("the network draws random numbers of its own, seeded at every step")
    return "; ".join(parts)
