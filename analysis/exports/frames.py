"""Rows and arrays to frames whose types are those of the columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dlscale.analysis.exports.columns import Column

DTYPES = {"string": "string", "integer": "Int64", "number": "Float64", "boolean": "boolean"}


def typed(rows: Sequence[Mapping[str, object]], columns: Sequence[Column]) -> pd.DataFrame:
    """Rows with those columns in that order; a key that a row lacks, or None, is not known."""
    make: Any = pd.array  # whose annotations know types by literal names only
    return pd.DataFrame(
        {
            one.name: make([_known(row.get(one.name)) for row in rows], dtype=DTYPES[one.kind])
            for one in columns
        }
    )


def stacked(parts: Sequence[Mapping[str, NDArray[Any]]], columns: Sequence[Column]) -> pd.DataFrame:
    """Arrays of equal length for each part, one below the other; NaN is not known.

    A column of words has one word per part and is kept as a category, for there are many rows and few words.
    """
    lengths = [len(next(one for one in part.values() if one.ndim)) for part in parts]
    frame = {}
    for column in columns:
        found = [part[column.name] for part in parts]
        if column.kind == "string":
            frame[column.name] = _words(found, lengths)
        else:
            frame[column.name] = _numbers(found, lengths, DTYPES[column.kind])
    return pd.DataFrame(frame)


def _known(value: object) -> object:
    unknown = value is None or (isinstance(value, float) and not np.isfinite(value))
    return pd.NA if unknown else value


def _words(found: Sequence[NDArray[Any]], lengths: Sequence[int]) -> pd.Categorical:
    """Each part has one word, or one for each of its rows."""
    spread = [np.broadcast_to(one, length) for one, length in zip(found, lengths, strict=True)]
    return pd.Categorical(np.concatenate([*spread, np.array([], dtype=object)]))


def _numbers(found: Sequence[NDArray[Any]], lengths: Sequence[int], dtype: str) -> Any:
    spread = [np.broadcast_to(one, length) for one, length in zip(found, lengths, strict=True)]
    values = np.concatenate([*spread, np.array([], dtype=spread[0].dtype if spread else float)])
    if dtype == "boolean":
        return pd.array(values.astype(bool), dtype="boolean")
    unknown = ~np.isfinite(values) if values.dtype.kind == "f" else np.zeros(len(values), dtype=bool)
    whole = np.where(unknown, 0, values)
    if dtype == "Int64":
        return pd.arrays.IntegerArray(whole.astype(np.int64), unknown)
    return pd.arrays.FloatingArray(whole.astype(np.float64), unknown)
