"""What stands out, as columns of a cell's row in `--json` and the CSV files."""

from __future__ import annotations

from typing import Any

from dlscale.analysis.outliers.cells import Outliers


def columns(found: Outliers | None) -> dict[str, Any]:
    """All None without launches that gave a number. Rates are those without what stands out, which counts elsewhere.

    `launches_out` names study, block and the factor of the time: `weak-scaling-1a2b 3: 1.120`.
    """
    if found is None:
        return dict.fromkeys(_COLUMNS)
    launches = "; ".join(
        f"{study} {block}: {one.factor:.3f}" for one in found.launches for study, block in [one.block]
    )
    values = (
        len(found.launches),
        launches,
        found.rate_without,
        found.num_windows,
        found.num_windows_out,
        found.longest,
        found.rate_without_windows,
    )
    return dict(zip(_COLUMNS, values, strict=True))


_COLUMNS = (
    "num_launches_out",
    "launches_out",
    "samples_per_second_without_launches_out",
    "num_windows",
    "num_windows_out",
    "longest_window_out",
    "samples_per_second_without_windows_out",
)
