"""A study's numbers for programs: what `dlscale report --json` prints."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dlscale.analysis.efficiency import ScalingTable, scaling_rows
from dlscale.analysis.findings import communication as exchange_rows
from dlscale.analysis.findings import productivity, waterfall_table
from dlscale.analysis.findings import stragglers as late_rows
from dlscale.analysis.findings.backends import to_backend_rows
from dlscale.analysis.findings.checkpoints import to_saving_row
from dlscale.analysis.findings.compression import compressed_cells, to_compression_row
from dlscale.analysis.findings.energy import to_energy_row
from dlscale.analysis.findings.ladder import ladder_rows
from dlscale.analysis.findings.late_gradients import to_late_row
from dlscale.analysis.findings.noise_scale import noise_scales, to_noise_row
from dlscale.analysis.findings.pareto import priced, to_pareto_row
from dlscale.analysis.findings.predicted_points import simulated_row
from dlscale.analysis.findings.predicted_solutions import prediction_rows, predictions
from dlscale.analysis.findings.productivity import to_productivity_row
from dlscale.analysis.findings.profiles import to_profile_row
from dlscale.analysis.findings.solution_table import evaluation_rows, to_solution_row
from dlscale.analysis.findings.staleness import to_staleness_row
from dlscale.analysis.findings.startup import to_start_up_row
from dlscale.analysis.findings.tuning import rate_rows, rate_searches

SCALING_SCHEMA = 1  # raised when a key changes its name or meaning; new keys may come at any time


def scaling_json(table: ScalingTable) -> dict[str, Any]:
    """`{"schema": 1, "rows": ..., ...}`: a list of flat rows per table, ready for `json.dumps`."""
    noises = noise_scales(table.solutions)
    backends = [row for comparison in table.comparisons for row in to_backend_rows(comparison)]
    compressed = compressed_cells(table.launches)
    searches = rate_searches(table.solutions, table.rows)
    return {
        "schema": SCALING_SCHEMA,
        "rows": scaling_rows(table),
        "backends": backends,
        "waterfalls": waterfall_table.waterfall_rows(table.waterfalls),
        "exchanges": exchange_rows.communication_rows(table.exchanges),
        "late": late_rows.straggler_rows(table.lateness),
        "start_up": [to_start_up_row(start) for start in table.start_ups],
        "checkpoints": [to_saving_row(saving) for saving in table.savings],
        "energy": [to_energy_row(energy) for energy in table.energies],
        "interference": table.interference and asdict(table.interference) | {"busy": table.interference.busy},
        "time_to_solution": [to_solution_row(row) for row in table.solutions],
        "evaluations": evaluation_rows(table.solutions),
        "noise_scales": [to_noise_row(noise) for noise in noises],
        "predicted_solutions": prediction_rows(predictions(noises, table.weak_scaling)),
        "pareto": [to_pareto_row(cell) for cell in priced(table.solutions, table.energies)],
        "productivity": [to_productivity_row(change) for change in productivity.stored_changes(table.pairs)],
        **({"staleness": [to_staleness_row(one) for one in table.stalenesses]} if table.stalenesses else {}),
        **(
            {"late_gradients": [to_late_row(one) for one in table.late_gradients]}
            if table.late_gradients
            else {}
        ),
        **({"profiles": [to_profile_row(parts) for parts in table.profiles]} if table.profiles else {}),
        **({"compression": [to_compression_row(cell) for cell in compressed]} if compressed else {}),
        **({"learning_rates": rate_rows(searches)} if searches else {}),
        **({"ladders": ladder_rows(table.ladders)} if table.ladders else {}),
        **({"predicted": [simulated_row(point) for point in table.predicted]} if table.predicted else {}),
    }
