"""Files of predictions over nodes: efficiency with its band, with their rows and records."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dlscale.analysis.figures.drawing import drawing
from dlscale.analysis.figures.figure import draw
from dlscale.analysis.figures.write import save_drawing
from dlscale.analysis.plots import Figure, Plot
from dlscale.analysis.predict.loggp import ENGINE, ENGINE_VERSION
from dlscale.analysis.predict.plots import efficiency_plot
from dlscale.analysis.predict.prediction import PredictedCurve, prediction_records
from dlscale.analysis.predict.scenario import ASSUMED
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.records import prediction_row
from dlscale.analysis.text import plural, workload_title
from dlscale.base.files import make_folder, read_regular
from dlscale.benchmarks.records.prediction import ENDING, PredictionRecord, write_predictions


def write_prediction(
    curves: Sequence[PredictedCurve],
    stem: Path,
    *,
    small_print: Sequence[str] = (),
    commit: str,
    command: str,
) -> None:
    """Write `<stem>.png`, `.pdf`, `.svg`, `.csv` and records, unless those that are there have the same numbers."""
    records = list(prediction_records(curves, commit=commit, command=command))
    rows = [prediction_row(record) for record in records]
    if _is_written(rows, stem):
        return
    first, scenario = records[0], curves[0].scenario
    doubts, assumptions = _doubts(records)
    title = (
        f"{workload_title(first.workload)}, {first.preset}: {first.scaling_mode} scaling on {first.system}"
    )
    warning = _warning("here", doubts, assumptions)
    figure = _figure(
        efficiency_plot(records, says=warning),
        title=title,
        warning=warning,
        subtitle=f"engine {ENGINE} {ENGINE_VERSION}; band: 5 to 95 %",
        small_print=(
            f"Profile: {first.profile_source}. Network: {scenario.network.source}.",
            *doubts,
            *assumptions,
            *small_print,
        ),
        rows=rows,
    )
    _save(figure, stem, records, study=f"prediction of {first.scaling_mode} scaling")


def _doubts(records: Iterable[PredictionRecord]) -> tuple[list[str], list[str]]:
    """Why the records are not to be trusted, and, for the small print, what is assumed of the system."""
    doubts = list(dict.fromkeys(doubt for record in records for doubt in record.doubts))
    assumed = [doubt for doubt in doubts if doubt.startswith(ASSUMED)]
    return (
        [f"Doubt: {doubt}." for doubt in doubts if doubt not in assumed],
        [f"{doubt[0].upper()}{doubt[1:]}." for doubt in assumed],
    )


def _warning(place: str, doubts: Sequence[str], assumptions: Sequence[str]) -> str:
    """The line below the title; each doubt and assumption is in the small print."""
    count = len(doubts) + len(assumptions)
    rests = f"; rests on {plural(count, 'assumption')}, below" if count else ""
    return f"predicted, nothing was measured {place}{rests}"


def _figure(plot: Plot, **words: Any) -> Figure:
    return Figure(name="predicted", panels=(plot,), wide=False, **words)


def _save(figure: Figure, stem: Path, records: Sequence[PredictionRecord], *, study: str) -> None:
    first = records[0]
    origin = Provenance(
        studies=(study,),
        systems=(first.system,),
        commits=(first.commit,),
        commands=(first.command,),
        data_hash=_digest(figure.rows),
    )
    make_folder(stem.parent)
    # First: the CSV, which says that all is written, comes last.
    write_predictions(records, Path(f"{stem}{ENDING}"))
    with drawing():
        save_drawing(draw(figure), stem, title=figure.title, rows=figure.rows, provenance=origin)


def _is_written(rows: Sequence[Mapping[str, Any]], stem: Path) -> bool:
    """Whether the figure, the CSV and the records at `stem` are there, and of these rows."""
    try:
        text = read_regular(f"{stem}.csv").decode()
    except (OSError, UnicodeDecodeError):
        return False
    return _digest(rows) in text and all(
        Path(f"{stem}{ending}").is_file() for ending in (".png", ".pdf", ".svg", ENDING)
    )


def _digest(rows: Iterable[Mapping[str, Any]]) -> str:
    """SHA-256 of the rows, which a figure and a CSV of them state as the hash of their data."""
    return hashlib.sha256(json.dumps(list(rows), sort_keys=True).encode()).hexdigest()
