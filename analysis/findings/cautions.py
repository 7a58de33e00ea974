"""Cautions: what everybody who reads a number of this study must know, said in every output in the same words.

A study with more than a few disturbed launches claims nothing: chance did not choose which backend was hit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from dlscale.analysis.finding import COUNT, Column, Finding, frame_of
from dlscale.analysis.findings import scaling
from dlscale.analysis.load import Study
from dlscale.analysis.statistics import MIN_BLOCKS
from dlscale.analysis.text import listed, plural
from dlscale.benchmarks.records.record import DISTURBED

MOST_DISTURBED = 0.1  # of the launches of a study that claims something
MOST_NAMED = 2  # groups of what was left out


def cautions(study: Study) -> pd.DataFrame:
    """One row per caution; `other_programs` also where they disturbed nothing, as the others' rows are not known."""
    rows: list[dict[str, Any]] = [*_other_programs(study), *_throttled(study)]
    rows += ({"kind": kind, "text": text} for kind, text in _others(study) if text)
    return frame_of(rows, "kind", "text", "num_launches", "num_disturbed", "share")


def is_busy(study: Study) -> bool:
    """Whether other programs, or the kernel for a quota, disturbed too many launches for any claim."""
    rows = [*_other_programs(study), *_throttled(study)]
    return any(row["num_disturbed"] > MOST_DISTURBED * row["num_launches"] for row in rows)


def texts(study: Study) -> list[str]:
    """The cautions in words, the gravest first."""
    found = FINDING.of(study)["text"]
    return [text for text in found if text]


def _other_programs(study: Study) -> Iterator[dict[str, Any]]:
    """One row of the trainings' launches whose foreign CPU time is known; none where nothing is known."""
    shares = study.good.loc[study.good["control"] == "train", "foreign_cpu"].dropna()
    if shares.empty:
        return
    disturbed = shares[shares > DISTURBED]
    share = float(disturbed.mean()) if len(disturbed) else 0.0
    text = f"{100 * share:.0f} % of the CPU time of {len(disturbed)} of {len(shares)} launches"
    if len(disturbed) > MOST_DISTURBED * len(shares):
        text = f"The machine was busy: other programs took {text}, so nothing is claimed."
    else:
        text = f"Other programs took {text}." if len(disturbed) else ""
    counts = {"num_launches": len(shares), "num_disturbed": len(disturbed), "share": share}
    yield {"kind": "other_programs", "text": text, **counts}


def _throttled(study: Study) -> Iterator[dict[str, Any]]:
    """One row where the kernel stopped launches of trainings whose container's quota of CPU time was used up."""
    counts = study.good.loc[study.good["control"] == "train", "num_throttled"]
    if not (num_stopped := int((counts > 0).sum())):
        return
    text = (
        f"The kernel stopped {num_stopped} of {plural(len(counts), 'launch')}, {plural(int(counts.sum()), 'time')} in "
        "all, because the CPU quota of their container or job was used up"
    )
    text += ", so nothing is claimed." if num_stopped > MOST_DISTURBED * len(counts) else "."
    yield {"kind": "throttled", "text": text, "num_launches": len(counts), "num_disturbed": num_stopped}


def _others(study: Study) -> Iterator[tuple[str, str]]:
    rows = scaling.FINDING.of(study)
    trained = rows[(rows["control"] == "train") & (rows["num_launches"] > 0)]
    if study.running:
        silent = int((rows["num_planned"] - rows["num_launches"]).sum())
        yield "running", f"The study is still running: {silent} planned cases have given no number yet."
    most = trained["num_launches"].max() if len(trained) else MIN_BLOCKS
    if most < MIN_BLOCKS:
        text = f"Too few launches to tell: {plural(most, 'launch')} of a case; an interval needs {MIN_BLOCKS} or more."
        yield "few_launches", text
    systems = sorted(set(rows.loc[rows["num_launches"] > 0, "system"]))
    if len(systems) > 1:
        yield "systems", f"Records of {len(systems)} systems: {listed(systems)}. Each curve is of one."
    kinds = {*rows["evidence"], *(one.evidence for one in study.predictions)} - {""}
    if len(kinds) > 1:
        yield "evidence", f"Evidence is {listed(sorted(kinds))}: never joined by a line."
    elif kinds - {"measured"}:
        yield "evidence", f"All numbers are {kinds.pop()}, not measured."
    unchecked = {own.unchecked for record in study.records if (own := record.case.cell.own)} - {""}
    yield from (("unchecked", f"Not checked of this file: {text}.") for text in sorted(unchecked))
    failed = failed_cases(study)
    if len(failed):
        first = failed.iloc[0]
        where = f"{first['curve']} on {plural(first['num_ranks'], 'rank')}, block {first['block_number']}"
        yield "failures", f"{plural(len(failed), 'case')} failed. First failure: {where}: {first['why']}."
    skipped = int(study.good["skipped"].sum())
    yield "skipped", f"{plural(skipped, 'unreadable sample')} left out." if skipped else ""
    left = left_out(study)
    more = " ..." if len(left) > MOST_NAMED else ""
    yield "left_out", f"Left out: {'; '.join(left[:MOST_NAMED])}{more}." if left else ""
    old = sum(study.records[number].gates_version is None for number in study.good["number"])
    text = f"The gates that had to pass are not listed in {plural(old, 'older record')}."
    yield "gates", text * bool(old)


def failed_cases(study: Study) -> pd.DataFrame:
    """The attempts that count of launches that gave no number."""
    return study.launches[study.launches["why"] != ""].sort_values(["system", "study", "case"])


def left_out(study: Study) -> list[str]:
    """One sentence per reason why something in the study's folder is not in the numbers."""
    files: dict[str, list[str]] = {}
    for bad in study.bad_files:
        files.setdefault(bad.reason, []).append(bad.path.name)
    ordered = sorted(files.items(), key=lambda item: (-len(item[1]), item[0]))
    return [*study.left_out, *(f"{_names(sorted(names))}: {reason}" for reason, names in ordered)]


def _names(names: list[str]) -> str:
    shown = ", ".join(names[:5]) + (" ..." if len(names) > 5 else "")
    return names[0] if len(names) == 1 else f"{len(names)} files ({shown})"


FINDING = Finding(
    name="cautions",
    title="Before you read on",
    compute=cautions,
    columns={
        "kind": Column("kind of caution"),
        "text": Column("the caution in words"),
        "num_launches": Column("launches of trainings", write=COUNT),
        "num_disturbed": Column(
            f"of these, stopped for a quota, or with more than {100 * DISTURBED:.0f} % of CPU time to other programs",
            write=COUNT,
        ),
        "share": Column("share of the disturbed launches' CPU time that other programs took"),
    },
    sentence=lambda frame: "\n".join(filter(None, frame["text"])),
    on_screen=True,
    is_answer=True,
)
