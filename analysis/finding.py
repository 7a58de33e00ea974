"""What a finding is: a frame computed from a study's frames, and how it is shown. Renderers loop over findings.

A frame has a row per thing that was found and plain column names; next to an interval `x` are its limits `x_low` and
`x_high`, its `x_n` and its `x_method`. What a finding declares in `columns` is what tables show and what JSON, CSV and
Parquet have, with the columns of the cell where a row has a `cell`. All else in the frame is for other findings.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import pandas as pd

from dlscale.analysis.cells import FIELDS
from dlscale.analysis.load import Study
from dlscale.analysis.statistics import NONE, Interval
from dlscale.analysis.text import CONTROL_NAMES, digits, error_text, number, plural, with_limits
from dlscale.analysis.theme import Axes

CELL_FIELDS = ("cell", "system", *FIELDS, "evidence", "fingerprint", "curve")  # of every row with a cell
ENDS = ("", "_low", "_high", "_n")  # of the names of an interval's columns


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a frame. Numbers are shown times `factor`, with the limits of an interval if there are any."""

    about: str  # what it is, in a phrase for the generated table
    label: str = ""  # empty: it is not shown, only exported
    unit: str = ""
    _: KW_ONLY
    factor: float = 1.0  # from the frame's unit to the shown one
    write: Callable[[float], str] = number
    is_detail: bool = False  # left out on one screen
    is_common: bool = False  # text that becomes the caption where all rows have the same

    @property
    def heading(self) -> str:
        return f"{self.label} [{self.unit}]" if self.unit else self.label

    def texts(self, frame: pd.DataFrame, name: str) -> list[str]:
        """What is shown of each row; empty for a missing value."""
        values = frame[name]
        if values.dtype == bool:
            return ["yes" if value else "no" for value in values]
        if not pd.api.types.is_numeric_dtype(values):
            return ["" if pd.isna(value) else str(value) for value in values]
        low, high = (frame.get(name + end, pd.Series(float("nan"), frame.index)) for end in ("_low", "_high"))
        rows = zip(*(self.factor * one.astype(float) for one in (values, low, high)), strict=True)
        return [with_limits(*row, write=self.write) for row in rows]


COUNT: Callable[[float], str] = "{:.0f}".format
SHARE: dict[str, Any] = {"unit": "%", "factor": 100.0, "write": digits(1)}
MILLISECONDS: dict[str, Any] = {"unit": "ms", "factor": 1e3}
# The columns that say what a row is about: of findings about trainings.
PLACE = {
    "training": Column("workload, preset, framework, kind of scaling and system", "training", is_common=True),
    "constants": Column("what is constant along a curve", "constants", is_common=True, is_detail=True),
    "name": Column("backend with its options; servers, control and kind of evidence if unusual", "backend"),
    "num_ranks": Column("ranks that train", "ranks", write=COUNT),
}


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A figure: `draw` draws the rows of one training, or those of each value of column `panels`, on an Axes."""

    name: str  # end of its files' names
    draw: Callable[[pd.DataFrame, Axes], None]
    rows: Callable[[pd.DataFrame], pd.DataFrame] = lambda frame: frame  # those that are drawn
    panels: str = ""
    size: tuple[float, float] = (4.6, 3.1)  # inches, of a panel
    left: float = 0.55  # inches, for what is written at the axis
    about: str = ""  # a caption, in a phrase


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One answer about a study; a file in `findings` declares it, and nothing else knows it by name."""

    name: str  # key of --json, file name of tables and figures
    title: str
    compute: Callable[[Study], pd.DataFrame]
    columns: Mapping[str, Column] = field(default_factory=dict)
    sentence: Callable[[pd.DataFrame], str] = lambda _: ""  # a verdict or a warning, in a line or a few
    drawings: Sequence[Drawing] = ()
    on_screen: bool = False  # sentence and table belong on one screen
    brief: Callable[[pd.DataFrame], pd.DataFrame] = lambda frame: frame  # the rows of the table on one screen
    is_answer: bool = False  # open at the top of the page; others are folded

    def of(self, study: Study) -> pd.DataFrame:
        """The frame of a study, computed once; with the columns of the cells where rows have a cell."""
        frame: pd.DataFrame = study.once(self._computed)
        return frame

    def _computed(self, study: Study) -> pd.DataFrame:
        frame = self.compute(study)
        if frame.empty:  # it has all columns even so
            declared = [name for name in self.columns if not ("cell" in frame and name in PLACE)]
            frame = frame.reindex(columns=list(dict.fromkeys([*frame, *declared])))
        if "cell" not in frame:
            return frame
        frame = study.with_cells(frame).copy()  # in one piece, or pandas warns of many columns
        texts = ["training", "constants", "curve", "control", "evidence"]
        frame[texts] = frame[texts].fillna("")  # of rows about no cell
        kinds = frame["evidence"].where(~frame["evidence"].isin(["measured", ""]), "")
        controls = frame["control"].map({**CONTROL_NAMES, "": ""})
        points = frame.groupby(["family", "curve", "control", "num_ranks"], dropna=False)["num_servers"]
        counts = frame["num_servers"].where(points.transform("nunique") > 1, 0)
        servers = [plural(count, "server") if count else "" for count in counts]
        parts = zip(frame["curve"], servers, controls, kinds, strict=True)
        return frame.assign(name=[", ".join(filter(None, own)) for own in parts])

    def exported(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The frame as programs get it: the cell's columns, then the declared ones with limits and n of intervals."""
        names = [name for name in CELL_FIELDS if name in frame and "cell" in frame]
        for name in self.columns:
            names += [own for own in (name + end for end in ENDS) if own in frame]
        return frame[[name for name in dict.fromkeys(names) if name not in _SHOWN_ONLY]]

    def table(self, frame: pd.DataFrame, *, brief: bool = False) -> pd.DataFrame:
        """The shown texts under headings, without empty columns; a text that all rows share is in `attrs["caption"]`.

        `attrs["about"]` has each heading's phrase. It is empty if it would only say what rows are about.
        """
        shown = {
            name: column
            for name, column in self.columns.items()
            if column.label and name in frame and not (brief and column.is_detail)
        }
        texts = {name: column.texts(frame, name) for name, column in shown.items()}
        common = [name for name in shown if shown[name].is_common and len({*texts[name]}) == 1]
        kept = [name for name in shown if name not in common and any(texts[name])]
        kept = kept if {*kept, *common} - PLACE.keys() else []
        table = pd.DataFrame({shown[name].heading: texts[name] for name in kept}, frame.index, dtype=object)
        table.attrs["caption"] = ", ".join(filter(None, (texts[name][0] for name in common)))
        table.attrs["about"] = {shown[name].heading: shown[name].about for name in kept}
        return table


_SHOWN_ONLY = ("training", "constants", "name")  # said by the cell's own columns


def load(names: Sequence[str], package: str) -> list[Finding]:
    """The findings that the modules of these names declare, in order."""
    return [importlib.import_module(f"{package}.{name}").FINDING for name in names]


def checked(study: Study, findings: Sequence[Finding]) -> list[Finding]:
    """The findings; one that raises an error says that instead, and none takes the others down."""
    return [_checked(study, finding) for finding in findings]


def _checked(study: Study, finding: Finding) -> Finding:
    try:
        frame = finding.of(study)
        finding.table(frame)
        finding.exported(frame)
        if len(frame):
            finding.sentence(frame)
    except Exception as error:
        text = error_text(f"{finding.title} could not be computed", error)
        study.errors.append(text)
        return Finding(
            name=finding.name,
            title=finding.title,
            compute=lambda _: pd.DataFrame({"text": [text]}),
            columns={"text": Column("why it could not be computed")},
            sentence=lambda _: text,
            on_screen=True,
            is_answer=True,
        )
    return finding


def of_trainings(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The rows of each training, in order; one nameless group of a frame that is not about trainings."""
    if "training" not in frame:
        return [("", frame)] if len(frame) else []
    return [(str(rows["training"].iloc[0]), rows) for _, rows in frame.groupby("family", dropna=False)]


def each_said(frame: pd.DataFrame, say: Callable[[pd.DataFrame], str]) -> str:
    """What `say` makes of each training's rows on its most ranks, a line each; those without are left out."""
    return "\n".join(filter(None, (say(on_most_ranks(rows)) for _, rows in of_trainings(frame))))


def on_most_ranks(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of each training on its largest number of ranks."""
    most = frame.groupby("family")["num_ranks"].transform("max")
    return frame[frame["num_ranks"] == most]


def on_several_ranks(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of trainings that have several numbers of ranks: a curve to draw."""
    return frame[frame.groupby("family")["num_ranks"].transform("nunique") > 1]


def frame_of(rows: Sequence[Mapping[str, Any]], *columns: str) -> pd.DataFrame:
    """A frame of rows, which has these columns even where no row has them, or there is none."""
    if not rows:
        return pd.DataFrame(columns=list(dict.fromkeys(columns)), dtype=object)
    frame = pd.DataFrame(rows)
    return frame.reindex(columns=list(dict.fromkeys([*frame, *columns])))


def columns_of(intervals: Sequence[Interval], name: str, index: pd.Index) -> pd.DataFrame:
    """The columns of an interval per row; they are there without a row, too."""
    return pd.DataFrame([one.columns(name) for one in intervals], index, list(NONE.columns(name)))
