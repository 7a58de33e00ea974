"""Workloads with samples of other rows than their presets': more blocks than small presets have."""

from dataclasses import replace

from dlscale.models import load_workload


def taller(name, preset, rows):
    """The workload with so many rows in that preset, of a network without weights for each row; None: as it is."""
    workload = load_workload(name)
    if rows is None:
        return workload
    facts = workload.preset(preset)
    channels, _, width = facts.input_shape
    return replace(workload, presets={preset: replace(facts, input_shape=(channels, rows, width))})
