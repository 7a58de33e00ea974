"""A small folder of published values, and studies of ours that could be what was published."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from dlscale.analysis.findings.scaling import Measured
from dlscale.analysis.measured import measure
from dlscale.analysis.published.catalogue import Published, load_published

COLUMNS = (
    *(
        "figure",
        "series",
        "x",
        "x_unit",
        "y",
        "y_unit",
        "quantity",
        "workload",
        "framework",
        "backend",
        "system",
    ),
    *("devices_per_node", "kind", "source", "note"),
)
STATEMENT_COLUMNS = (
    *(
        "figure",
        "series",
        "statement",
        "label",
        "quantity",
        "low",
        "high",
        "unit",
        "x_low",
        "x_high",
        "x_unit",
    ),
    *("kind", "source", "note"),
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
x_range = [1, 4]
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


@pytest.fixture
def cori(make_study: Callable[..., list]) -> Callable[..., Measured]:
    """A table of ours on cori, one rank per node: backend -> rate per rank on each number of nodes, over 100."""

    def make(
        efficiency: dict[str, tuple[float, ...]], *, nodes: tuple[int, ...] = (1, 2, 4), **fields: object
    ) -> Measured:
        records = []
        for index, num_nodes in enumerate(nodes):
            records += make_study(
                efficiency={backend: (kept[index],) for backend, kept in efficiency.items()},
                rank_counts=(num_nodes,),
                num_nodes=num_nodes,
                drift=(1.0,),
                noise=0.001,
                **{"system": "cori", "preset": "paper", **fields},
            )
        return measure(records)

    return make
