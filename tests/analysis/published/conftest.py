"""A small folder of published values, and studies of ours that could be what was published."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlscale.analysis.load import Study
from dlscale.analysis.published.catalogue import Figure, Published, load_published
from dlscale.analysis.published.claims import Publication
from dlscale.analysis.published.values import Statement, Value
from dlscale.benchmarks.records.record import Record
from tests.made_records import make_study

COLUMNS, STATEMENT_COLUMNS = (
    tuple(field.alias or name for name, field in kind.model_fields.items()) for kind in (Value, Statement)
)
CATALOGUE = """
[figures.small]
title = "A small figure"
publication = "Somebody, 2020"
public = "Every value."
workload = "HEP-CNN"
x_label = "nodes"
x_unit = "nodes"
x_scale = "log2"
tolerance = 0.1
panels = [
  { layout = "throughput", y_label = "throughput", y_unit = "images/s", y_scale = "log" },
  { layout = "efficiency", y_label = "scaling efficiency", y_unit = "%", y_scale = "linear" },
]

  [figures.small.own]
  workload = "hep_cnn"
  preset = "paper"
  scaling_mode = "weak"
  framework = "torch"
  system = "cori"
  ranks_per_node = 1

  [figures.small.series.theirs]
  own = { backend = "ring" }
"""
VALUE = {
    "figure": "small",
    "series": "theirs",
    "x_unit": "nodes",
    "y_unit": "images/s",
    "quantity": "throughput",
    "kind": "table",
    "source": "Somebody, 2020, table 1",
}


@pytest.fixture(scope="session")
def published() -> Published:
    """What is in the checkout."""
    return load_published()


@pytest.fixture
def catalogue() -> str:
    """Of one figure, `small`, with two panels and a series that our ring on cori may be compared with."""
    return CATALOGUE


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """Write a folder of published values: rows over the defaults above; its path."""

    def write(
        *rows: dict[str, object], statements: tuple[dict[str, object], ...] = (), catalogue: str = CATALOGUE
    ) -> Path:
        path = tmp_path / "published"
        path.mkdir(exist_ok=True)
        (path / "figures.toml").write_text(catalogue)
        _write(path / "small.csv", COLUMNS, [VALUE | row for row in rows])
        common = {"figure": "small", "kind": "text", "source": "Somebody, 2020"}
        _write(path / "statements.csv", STATEMENT_COLUMNS, [common | one for one in statements])
        return path

    return write


def _write(path: Path, columns: tuple[str, ...], rows: list[dict[str, object]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)


def cori_records(
    efficiency: dict[str, tuple[float, ...]], *, nodes: tuple[int, ...] = (1, 2, 4), **fields: object
) -> list[Record]:
    """Records on cori, one rank per node: backend -> rate per rank on each number of nodes, over 100."""
    known: dict[str, Any] = {"system": "cori", "preset": "paper", "noise": 0.001} | fields
    places = {"rank_counts": nodes, "num_nodes": {count: count for count in nodes}}
    return make_study(efficiency=efficiency, drift=(1.0,), **places, **known)


def cori(*shares: Any, **fields: Any) -> Study:
    """What was measured there."""
    return Study(cori_records(*shares, **fields))


def made_figure(**fields: Any) -> Figure:
    """A figure of the catalogue about which a test says no more."""
    known = dict(zip(("id", "title", "publication", "public", "workload"), "ftpaw", strict=True))
    return Figure(**{**known, "public": "All.", "tolerance": 0.1, **fields})


def value(
    quantity: str, x: float, printed: str, *, note: str = "", unit: str = "", series: str = "s"
) -> Value:
    unit = unit or {"throughput": "images/s"}.get(quantity, "1")
    place = {"figure": "f", "series": series, "quantity": quantity, "x": x, "x_unit": "GPUs"}
    number = {"printed": printed, "y_unit": unit, "kind": "table", "source": "s", "note": note}
    texts = dict.fromkeys(("workload", "framework", "backend", "system"), "")
    return Value(**place, **number, **texts, devices_per_node=None)


def exactly(value: float) -> dict[str, Any]:
    return {"low": value, "high": value, "unit": "", "kind": "assumed", "source": "a test"}


def known(value: int) -> dict[str, Any]:
    return {"value": value, "kind": "assumed", "source": "a test"}


def publication(
    inputs: dict[str, dict[str, Any]] | None = None,
    claims: tuple[dict[str, Any], ...] = (),
    overlap: str = "none",
    algorithm: str = "ring",
    flat: bool = False,
    **more: Any,
) -> Publication:
    """100 MB over a ring of servers with 4 devices: 0.2 s per step, 60 % of it backpropagation, 10 GB/s."""
    numbers = {"step": 0.2, "backward": 0.6, "rate": 10e9, "latency": 1e-9, "variation": 1e-9}
    sourced = {"kind": "assumed", "source": "a test"}
    curve = {
        "name": "a curve",
        "figures": {"powerai-ddl-3": "Torch"},
        "backend": "mpi",
        "network": "resnet50",
    }
    curve |= {"transport": {"algorithm": algorithm, "overlap": overlap, "flat": flat, **sourced}}
    curve |= {"base": 4, "sizes": [4, 16, 64], "devices_per_node": known(4), "batch": known(32)}
    curve |= {name: name for name in numbers} | more
    ranges = {name: exactly(value) for name, value in numbers.items()} | (inputs or {})
    content = {"name": "small", "title": "A publication", "inputs": ranges, "claims": claims}
    return Publication.model_validate(content | {"device_curves": [curve]})


def network(*shares: tuple[float, float]) -> dict[str, Any]:
    """A network of 100 MB; all of its gradients are ready after backpropagation unless shares are given."""
    return {"resnet50": [(int(1e8 * share), ready, 1) for share, ready in shares or [(1.0, 1.0)]]}
