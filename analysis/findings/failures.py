"""What is missing: attempts that gave no number, unreadable files, and records that are not used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dlscale.analysis.finding import COUNT, PLACE, Column, Finding
from dlscale.analysis.load import Study
from dlscale.analysis.text import plural
from dlscale.benchmarks.records.record import Record

FILE, FINGERPRINT = "file", "fingerprint"  # kinds of what is left out, other than attempts


def failures(study: Study) -> pd.DataFrame:
    """One row per attempt without a number, by case; then one per unreadable file and left-out fingerprint.

    `is_repeated` says that another attempt at the case gave a number.
    """
    case = ["system", "study", "case"]
    attempts = study.attempts
    good = attempts.loc[attempts["why"] == "", case].drop_duplicates().assign(is_repeated=True)
    frame = attempts[attempts["why"] != ""].merge(good, on=case, how="left")
    found = [_details(study.records[number]) for number in frame["number"]]
    details = pd.DataFrame(found, columns=["kind", "rank", "node"], dtype=object)
    frame = frame.join(details).assign(is_repeated=frame["is_repeated"].notna(), file="")
    others = [{"kind": FILE, "file": bad.path.name, "why": bad.reason} for bad in study.bad_files]
    others += [{"kind": FINGERPRINT, "file": "", "why": text} for text in study.left_out]
    frame = frame[["cell", *_OWN]].sort_values(["case", "attempt"], kind="stable").astype(object)
    if others:
        more = pd.DataFrame(others, columns=["cell", *_OWN], dtype=object).assign(is_repeated=False)
        frame = pd.concat([frame, more], ignore_index=True)
    return frame.reset_index(drop=True).astype({"is_repeated": bool})


_OWN = ("kind", "case", "block_number", "attempt", "rank", "node", "why", "is_repeated", "file")


def _details(record: Record) -> tuple[str, Any, str]:
    """The kind of failure, its rank and that rank's node."""
    if record.failure is None:
        return "unusable", None, ""
    rank = record.failure.rank
    node = next((place.node for place in record.ranks if place.rank == rank), "")
    return record.failure.kind, rank, node


def first_failure(frame: pd.DataFrame) -> str:
    """What failed first, how much did, and what is left out."""
    attempts = frame[~frame["kind"].isin([FILE, FINGERPRINT])]
    lasting = attempts[~attempts["is_repeated"]]
    repeated = len(attempts) - len(lasting)
    texts = []
    if len(lasting):
        first = lasting.iloc[np.argmin(lasting["block_number"])]
        node = f", node {first['node']}" if first["node"] else ""
        at = f"{first['name']} on {plural(first['num_ranks'], 'rank')}, block {first['block_number']}{node}"
        cases = plural(lasting["case"].nunique(), "case")
        texts.append(f"{cases} gave no number. First: {at}: {first['why']}.")
    if repeated:
        texts.append(f"{plural(repeated, 'attempt')} failed and succeeded when repeated.")
    left = [
        plural(number, noun)
        for kind, noun in ((FILE, "unreadable file"), (FINGERPRINT, "fingerprint"))
        if (number := int((frame["kind"] == kind).sum()))
    ]
    texts += [f"Left out: {' and '.join(left)}."] if left else []
    return " ".join(texts)


FINDING = Finding(
    name="failures",
    title="Missing and failed launches",
    compute=failures,
    columns={
        **PLACE,
        "kind": Column("kind of failure; unusable windows; what is left out: file or fingerprint", "kind"),
        "case": Column("name of the launch"),
        "block_number": Column("its block", "block", write=COUNT),
        "attempt": Column("number of the attempt", "attempt", write=COUNT),
        "rank": Column("the first rank that failed, if known", "rank", write=COUNT),
        "node": Column("that rank's node", "node"),
        "is_repeated": Column("whether another attempt gave a number", "repeated"),
        "file": Column("name of an unreadable file", "file"),
        "why": Column("why there is no number", "why"),
    },
    sentence=first_failure,
)
