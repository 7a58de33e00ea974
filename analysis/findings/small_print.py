"""The words about a figure that several findings share: what is shown, and where the data is from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dlscale.analysis.families import Family
from dlscale.analysis.findings.predicted_points import (
    PlacedPrediction,
    doubts_of,
    origin_sentence,
    to_scaling_columns,
)
from dlscale.analysis.findings.scaling import ScalingRow, scaling_row
from dlscale.analysis.plots import Figure, HeatMap, Loss, Plot
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.statistics import Interval
from dlscale.analysis.text import training_title
from dlscale.benchmarks.records.cell import Cell


def span(values: Sequence[int]) -> str:
    """`6`, or `5 to 6` where they differ."""
    return str(min(values)) if min(values) == max(values) else f"{min(values)} to {max(values)}"


def origin(rows: Sequence[ScalingRow], provenance: Provenance) -> str:
    """The origin of the data: study, fingerprint, commit and hash, abbreviated."""
    fingerprints = sorted({row.fingerprint[:12] for row in rows if row.fingerprint})
    return (
        f"Study {', '.join(provenance.studies)}; fingerprint {', '.join(fingerprints)}; "
        f"commit {', '.join(_short(commit) for commit in provenance.commits)}; data {provenance.data_hash[:12]}."
    )


def _short(commit: str) -> str:
    """The first 12 digits of a commit, and whether the checkout was dirty."""
    digits, mark, _ = commit.partition("+")
    return digits[:12] + (mark and "+dirty")


def solution_origin(provenance: Provenance) -> str:
    """The origin of the data without fingerprints: study, commit and hash, abbreviated."""
    commits = ", ".join(commit[:12] for commit in provenance.commits)
    return f"Study {', '.join(provenance.studies)}; commit {commits}; data {provenance.data_hash[:12]}."


def bars_text(intervals: Iterable[Interval], what: str = "bars") -> str:
    """`bars: 96.9 % order-statistic interval.`, or why there are none."""
    levels = sorted({100 * interval.level for interval in intervals if interval.low is not None})
    if not levels:
        return f"no {what}: an interval needs 6 launches."
    return f"{what}: {', '.join(f'{level:.1f}' for level in levels)} % order-statistic interval."


def family_figure(
    family: Family,
    rows: Sequence[ScalingRow],
    shown: Iterable[Cell],
    provenance: Provenance,
    *,
    name: str,
    brief: str,
    words: Iterable[str],
    panels: tuple[Plot, ...] | tuple[Loss, ...] | tuple[HeatMap, ...],
    lines: Sequence[Mapping[str, Any]],
    predicted: Sequence[PlacedPrediction] = (),
    subtitle: str = "",
    wide: bool = True,
    shared: bool = False,
) -> Figure:
    """A figure of a family with what is said around all of them; `rows` are the family's, `shown` the cells drawn.

    Of what is `predicted` in it the warning has the doubts, and the small print the origin.
    """
    source = origin_sentence(predicted)
    cells = {cell.id for cell in shown}
    return Figure(
        name=name,
        title=training_title(family),
        brief=brief,
        warning=doubts_of(predicted),
        subtitle=subtitle or family.constants,
        small_print=(
            " ".join(filter(None, words)),
            *([source] if source else []),
            origin([row for row in rows if row.cell.id in cells], provenance),
        ),
        panels=panels,
        rows=lines,
        wide=wide,
        shared=shared,
    )


def scaling_lines(
    rows: Iterable[ScalingRow], predicted: Iterable[PlacedPrediction] = ()
) -> list[dict[str, Any]]:
    """The rows of `--json`, their notes joined by "; ", and behind them what is predicted, in the same columns."""
    lines = [{**row, "notes": "; ".join(row["notes"])} for row in map(scaling_row, rows)]
    unknown = dict.fromkeys(lines[0]) if lines else {}
    return [*lines, *(unknown | to_scaling_columns(point) for point in predicted)]
