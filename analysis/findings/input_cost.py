"""What fetching batches costs a training, in words; the numbers are in the rows of all cells."""

from __future__ import annotations

from dlscale.analysis.declare import Sentence, tags_of
from dlscale.analysis.finding import Finding
from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.scaling import ScalingRow
from dlscale.analysis.statistics import Interval
from dlscale.analysis.text import flaws_text, plural, with_limits


def input_cost(row: ScalingRow) -> str:
    """A sentence on what fetching batches costs the training of a row; empty if no control measured it."""
    parts = []
    if row.input_stall:
        parts.append(f"fetching a batch takes {_share_text(row.input_stall)} of a step")
    if row.input_loss and row.input_loss.low is not None and row.input_loss.low <= 0:
        parts.append(f"reading data costs no measurable time ({_share_text(row.input_loss)} of a step)")
    elif row.input_loss:
        parts.append(f"training on resident tensors saves {_share_text(row.input_loss)} of a step")
    if not parts:
        return ""
    kind = "" if row.evidence == "measured" else f" ({row.evidence})"
    return f"input on {plural(row.cell.num_ranks, 'rank')}{kind}: {'; '.join(parts)}."


def _share_text(share: Interval) -> str:
    """`3.21 % [3.10, 3.32]`: for shares near 0, which `percent` would round to 0."""
    return with_limits(share.times(100), unit=" %") + flaws_text(share)


FINDINGS = (
    Finding(
        name="input",
        title="Input",
        compute=lambda study: [row for row in scaling.FINDING.of(study) if input_cost(row)],
        sentences=lambda rows: (
            Sentence(
                text=f"{row.cell.workload}, {row.cell.framework}, {input_cost(row)}", tags=tags_of(row.cell)
            )
            for row in rows
        ),
    ),
)
