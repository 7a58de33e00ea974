"""What input costs a training step, from the controls that ran in the same launches as the training."""

from __future__ import annotations

from collections.abc import Iterable

from dlscale.analysis.launches import Launches
from dlscale.analysis.statistics import Interval, block_ratio
from dlscale.benchmarks.record import Control


def input_stall(launches: Launches, relatives: Iterable[Launches]) -> Interval | None:
    """Seconds to fetch a batch over seconds of a training step: the share of a step that waits for input.

    That is the loader-only control over `launches`, good ones of one kind of evidence; paired by block like
    an efficiency. Batches are fetched when a step needs them and not before, so all of it is waiting. None
    for controls, and where that control has no number.
    """
    return _share(launches, relatives, control="loader")


def input_loss(launches: Launches, relatives: Iterable[Launches]) -> Interval | None:
    """The share of a training step that is saved on resident tensors: 1 - synthetic / training, in seconds.

    Negative where the real data were faster, as noise can make them. None as for `input_stall`.
    """
    share = _share(launches, relatives, control="synthetic")
    return share and share.complement()


def _share(launches: Launches, relatives: Iterable[Launches], *, control: Control) -> Interval | None:
    """Seconds per step of a control over those of the training beside it, in the same framework and backend."""
    cell = launches.cell
    if cell.control != "train" or launches.cases.empty:
        return None
    wanted = cell.model_copy(update={"control": control})
    found = [one for one in relatives if one.family == launches.family and one.cell == wanted]
    beside = [one.only(launches.kinds[0]) for one in found]
    if not beside or beside[0].cases.empty:
        return None
    return block_ratio(beside[0].by_block("seconds_per_step"), launches.by_block("seconds_per_step"))
