"""What both frameworks ask of the first training step of a user's file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dlscale.models.own.file import OwnFile

SAME = 1e-4  # relative difference of losses that are the same but for rounding


def check_outputs(own: OwnFile, shape: Sequence[int] | None, found: Any, *, num_samples: int) -> None:
    """Raises UsageError unless the network returned one tensor (`shape`; None: it did not) with all samples."""
    if not shape or shape[0] != num_samples:
        what = f"shape {tuple(shape)}" if shape is not None else f"a {type(found).__name__}"
        raise own.wrong(
            f"the network gives {what} for {num_samples} samples; it must return one tensor, with the samples as its "
            "first axis"
        )


def check_loss(own: OwnFile, arguments: str, loss: float, *, twice: float) -> None:
    """Raises UsageError for a loss that is not finite, or is a sum over samples: ranks average theirs.

    `twice` is the loss of the same samples twice; 0 where it takes whole batches alone.
    """
    if not math.isfinite(loss):
        raise own.wrong(f"the first loss is {loss}; it must be finite", at="loss")
    if loss and math.isclose(twice, 2 * loss, rel_tol=SAME):
        raise own.wrong(
            f"loss({arguments}) is twice as large for the same samples twice: it is a sum over them, and ranks average "
            "theirs; return the mean",
            at="loss",
        )


def check_used(own: OwnFile, unused: Sequence[str], switch: str) -> None:
    """Raises UsageError for weights that the loss does not depend on."""
    if unused:
        raise own.wrong(
            f"the loss does not depend on {', '.join(unused[:3])}; leave such weights out, or set their {switch} to "
            "False",
            at="model",
        )


def check_new(own: OwnFile, again: Sequence[str]) -> None:
    """Raises UsageError for weights that `model()` returned before."""
    if again:
        raise own.wrong(
            f"model() returns {again[0]} again when it is called again; every replica needs weights of its own: make "
            "the layers inside of model()",
            at="model",
        )


def check_inside(own: OwnFile, outside: Sequence[str], remedy: str) -> None:
    """Raises UsageError for weights that are trained and no part of the network."""
    if outside:
        raise own.wrong(
            f"{outside[0]} is trained and is no weight of model(), so that neither optimizer nor ranks would know of "
            f"it; make it a part of the network{remedy}"
        )


def unrepeatable(own: OwnFile, remedy: str) -> Exception:
    """The error of a network that keeps or draws what seeding does not repeat."""
    return own.wrong(
        "the network gives other outputs for the same samples, weights and seeds when it is called again, so that no "
        f"step could be checked by taking it again; {remedy}",
        at="model",
    )


def classes_in(outputs: Sequence[int], labels: Sequence[int], *, are_whole: bool) -> int:
    """The number of classes, by the shapes of outputs and labels; 0 where labels are something else."""
    return outputs[1] if len(outputs) == 2 and outputs[1] > 1 and len(labels) == 1 and are_whole else 0
