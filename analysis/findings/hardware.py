"""Use of the hardware: floating-point operations per second of a rank, and their share of what its cores or GPU can do.

    operations per sample = 3 x those of a forward pass      a layer's gradients, of inputs and of weights, are two more
    per rank              = throughput x operations per sample / ranks
    MFU, share of peak    = per rank / (the node's peak x cores per rank / cores, or a GPU's peak), by the data type

Only convolutions and products of matrices are counted, those of attention with all pairs of tokens, as each preset
states them, so this is the model's use ("MFU") and not the hardware's: what is computed twice counts once. The peak is
what the system's file states, with its source: the file that comes with dlscale, or else that of the study. Where it
states less than was measured, there is no share. An adversarial training has two networks and no such count.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from dlscale.analysis.finding import ENDS, PLACE, SHARE, Column, Finding
from dlscale.analysis.findings import scaling
from dlscale.analysis.load import Study
from dlscale.analysis.text import listed
from dlscale.base.errors import UsageError
from dlscale.base.quantities import Quantity
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.systems.system import System, load_system

PASSES = 3  # of a training step, in forward passes
GIGA = 1e9


def hardware(study: Study) -> pd.DataFrame:
    """One row per training with a throughput whose operations are known."""
    rates = scaling.FINDING.of(study)
    rates = rates[(rates["control"] == "train") & rates["samples_per_second"].notna()]
    per_sample = [_flops_per_sample(study.measured[key]) for key in rates["cell"]]
    rates = rates.assign(per_sample=np.array(per_sample, float))
    rates = rates[rates["per_sample"].notna()].reset_index(drop=True)
    systems = {name: _system(name, study.system) for name in set(rates["system"])}
    stated = [
        _peak(systems[system], study.measured[key])
        for system, key in zip(rates["system"], rates["cell"], strict=True)
    ]
    frame = rates[["cell"]].assign(
        peak_flops_per_second=np.array([peak for peak, _ in stated], float),
        peak_source=pd.Series([source for _, source in stated], rates.index, dtype=str),
    )
    peak = frame["peak_flops_per_second"]
    for end in ENDS:
        factor = 1 if end == "_n" else rates["per_sample"] / rates["num_ranks"]
        frame[f"flops_per_second_and_rank{end}"] = rates[f"samples_per_second{end}"] * factor
    measured = frame["flops_per_second_and_rank"]
    is_above = measured > peak
    for end in ENDS:
        own = frame[f"flops_per_second_and_rank{end}"] / (1 if end == "_n" else peak)
        frame[f"peak_share{end}"] = own.where(peak.notna() & ~is_above)
    texts = zip(rates["system"], rates["precision"], peak, measured, is_above, strict=True)
    frame["peak_refused"] = pd.Series([_refusal(*row) for row in texts], frame.index, dtype=str)
    return frame


def _refusal(system: str, precision: str, peak: float, measured: float, is_above: bool) -> str:
    if not is_above:
        return ""
    stated = f"{system}'s file states a peak of {peak / GIGA:.4g} GFLOP/s per rank for {precision}"
    return f"no share: {stated}, {measured / peak:.0%} of which was measured; correct the file"


def _flops_per_sample(cell: Cell) -> float:
    try:
        preset = cell.preset_facts
    except (UsageError, ImportError):  # of another version's records
        return np.nan
    known = preset.num_classes and preset.forward_flops_per_sample
    return PASSES * preset.forward_flops_per_sample if known else np.nan


def _system(name: str, of_study: System | None) -> System | None:
    try:
        return load_system(name)
    except UsageError:  # a file of the user's
        return of_study if of_study and of_study.name == name else None


def _stated(system: System, cell: Cell) -> Quantity | None:
    """The peak at the cell's precision of what it trained on: a GPU, or a node whose cores are known."""
    if cell.device == "cpu" and isinstance(system.node.cores, str):
        return None
    part = system.devices if cell.device == "gpu" else system.node
    return part.peak.get(cell.precision) if part else None


def _peak(system: System | None, cell: Cell) -> tuple[float, str]:
    """Operations per second that a rank could reach, and the document that says so; NaN if none does."""
    stated = _stated(system, cell) if system else None
    if system is None or stated is None:
        return np.nan, ""
    document = system.sources.get(stated.source, stated.source)
    source = f"{document} ({stated.note})" if stated.note else document
    cores = system.node.cores
    is_of_node = not isinstance(cores, str) and cell.device != "gpu"
    return stated.number * (cell.cores_per_rank / cores.value if is_of_node else 1), source  # type: ignore[union-attr]


def without_peak(frame: pd.DataFrame) -> str:
    """What no file states, and what to write there."""
    missing = frame[frame["peak_flops_per_second"].isna()]
    if missing.empty:
        return ""
    files = [
        f"{system} states no peak of its {'GPUs' if device == 'gpu' else 'cores'} for "
        f"{listed(dict.fromkeys(own['precision']))}"
        for (system, device), own in missing.groupby(["system", "device"], sort=False)
    ]
    first = missing.iloc[0]
    place, neighbour = (
        ("devices.peak", "devices.per_node") if first["device"] == "gpu" else ("node.peak", "node.cores")
    )
    return (
        f"No MFU: the file of {'; that of '.join(files)}. Write {place}.{first['precision']} = "
        f'{{ value = "... TFLOP/s", source = "..." }} next to {neighbour} in your own file.'
    )


FINDING = Finding(
    name="hardware",
    title="Use of the hardware",
    compute=hardware,
    columns={
        **PLACE,
        "flops_per_second_and_rank": Column(
            "throughput x 3 forward passes / ranks; convolutions and products of matrices",
            "per rank",
            "GFLOP/s",
            factor=1 / GIGA,
        ),
        "peak_flops_per_second": Column(
            "what the system's file states for a rank's cores or GPU", "peak", "GFLOP/s", factor=1 / GIGA
        ),
        "peak_share": Column("per rank / peak", "MFU", **SHARE),
        "peak_source": Column(
            "document that states the peak", "source of the peak", is_common=True, is_detail=True
        ),
        "peak_refused": Column("why there is no share although the peak is stated", "notes"),
    },
    sentence=without_peak,
)
