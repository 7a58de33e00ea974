"""Which framework to use here: the answer of `dlscale run frameworks`, and of `dlscale compare --frameworks`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from dlscale.analysis.finding import collect
from dlscale.analysis.findings.data_formats import data_is_prepared, format_uses
from dlscale.analysis.findings.framework_choice import Choice, choices, framework_findings
from dlscale.analysis.findings.program_plots import program_figures
from dlscale.analysis.findings.programs import JOB_SECONDS, programs
from dlscale.analysis.measured import Measured
from dlscale.analysis.render.data import study_json
from dlscale.analysis.render.screen import render_findings
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA
from dlscale.benchmarks.cli.several_studies import FOLDER, origin_of, put_several, warnings_of
from dlscale.benchmarks.cli.study_report import load, tell_left_out
from dlscale.benchmarks.records.files import uncollected
from dlscale.benchmarks.records.preparation import FOLDER as FORMATS_FOLDER
from dlscale.benchmarks.records.preparation import read_preparations
from dlscale.benchmarks.records.store import Store

MOST_SENTENCES = 3  # at the top of the page


def answer(
    folders: Sequence[Path], results: Path, job_seconds: float = JOB_SECONDS, *, as_json: bool = False
) -> int:
    """Answer from the studies' records on the screen and on a page below `results`; returns the exit status.

    Raises UsageError if nothing was measured.
    """
    with uncollected():
        loaded = [load(Store(folder)) for folder in folders]
        studies = [one.study for one in loaded]
        places = dict.fromkeys(folder.resolve().parent / FORMATS_FOLDER for folder in folders)
        prepared = [found for place in places for found in read_preparations(place)]
        uses = format_uses(studies, prepared)
        items = [
            item
            for item in programs(studies, job_seconds=job_seconds)
            if not data_is_prepared(item.row, prepared)
        ]
        names = [folder.name for folder in folders]
        if not uses and not any(item.row.throughput or item.solution for item in items):
            raise UsageError(f"{', '.join(names)}: no training has a number; look at: dlscale status")
        asked = choices(items, studies)
        found = collect(framework_findings(items, asked, uses), studies[0])
        if as_json:
            click.echo(json.dumps(study_json(found)))
        else:
            Console(highlight=False).print(render_findings(found))
            origin = origin_of(loaded)
            commands = dict.fromkeys(item.script_command for item in items if item.script_command)
            digest = hashlib.sha256("+".join(names).encode()).hexdigest()[:8]
            sentences = [sentence for choice in asked for sentence in choice.sentences]
            put_several(
                loaded,
                found,
                results / FOLDER / f"frameworks-{digest}.html",
                title="Which framework to use here",
                facts=[
                    ("studies", ", ".join(origin.studies)),
                    ("system", ", ".join(origin.systems)),
                    ("how a script is started", "; ".join(commands)),
                ],
                summary=sentences[:MOST_SENTENCES] or ["No training was measured in two programs."],
                warnings=[(sentence, "answers") for one in loaded for sentence in warnings_of(one)],
                origin=origin.short_line(),
                figures=program_figures(items, origin),
            )
        for study in studies:
            tell_left_out(study.bad_files, study.left_out)
    return FAILED_CASES if any(one.error for one in found) else _status(studies, asked)


def _status(studies: Sequence[Measured], asked: Sequence[Choice]) -> int:
    # An attempt that failed and was made good since is no failed case.
    failed = any(len(launches.good) < len(launches.cases) for study in studies for launches in study.launches)
    if failed or any(study.bad_files or study.left_out for study in studies):
        return FAILED_CASES
    undecided = any(choice.ranking.undecided for choice in asked)
    return INSUFFICIENT_DATA if undecided or not asked else 0
