"""Quantities as people write them; wrong units and missing sources are refused."""

import pytest
from pydantic import ValidationError

from dlscale.base.quantities import parse_quantity
from dlscale.benchmarks.systems.system import System, facts


@pytest.mark.parametrize(
    ("text", "dimension", "number"),
    [
        ("96 GB", "bytes", 96e9),
        ("16GiB", "bytes", 16 * 2**30),
        ("8 GB/s", "bytes per second", 8e9),
        ("200 Gb/s", "bytes per second", 25e9),
        ("40 Gbit/s", "bytes per second", 5e9),
        ("1.3 us", "seconds", 1.3e-6),
        ("48h", "seconds", 172800.0),
        ("29.5 PFLOP/s", "operations per second", 29.5e15),
        ("1.4 GHz", "hertz", 1.4e9),
    ],
)
def test_a_quantity_in_its_base_unit(text, dimension, number):
    assert parse_quantity(text, dimension) == pytest.approx(number, rel=1e-12)


@pytest.mark.parametrize(
    "text", ["8 GB", "8", "GB/s", "8 Gflops", "-8 GB/s", "8 gB/s", "8 GB/s per node", ""]
)
def test_another_dimension_or_none_is_refused(text):
    with pytest.raises(ValueError, match="is not in bytes per second; write, for example, 8 GB/s"):
        parse_quantity(text, "bytes per second")


def described(**changes):
    values = {
        "name": "one",
        "title": "One",
        "scheduler": "none",
        "launcher": "mpiexec",
        "sources": {"docs": "the centre's page"},
        "node": {"cores": {"value": 4, "source": "docs"}},
        "environments": {},
    }
    return System.model_validate(values | changes)


def test_facts_know_their_places():
    fabric = {
        "name": {"value": "Aries", "source": "docs"},
        "bandwidth": {"value": "8 GB/s", "source": "docs", "kind": "table"},
    }
    system = described(fabric=fabric)
    assert [place for place, _ in facts(system)] == ["node.cores", "fabric.name", "fabric.bandwidth"]
    assert system.fabric.bandwidth.number == 8e9


def test_where_sources_differ_a_quantity_has_limits():
    def bandwidth(**limits):
        fact = {"value": "8 GB/s", "source": "docs"} | limits
        return described(
            fabric={"name": {"value": "Aries", "source": "docs"}, "bandwidth": fact}
        ).fabric.bandwidth

    assert (bandwidth().factors, bandwidth().text) == ((1.0, 1.0), "8 GB/s")
    wide = bandwidth(low="6000 MB/s", high="10 GB/s")
    assert (wide.factors, wide.text) == ((0.75, 1.25), "8 GB/s (6000 MB/s to 10 GB/s)")
    with pytest.raises(ValidationError, match="does not lie between low '9 GB/s' and high '8 GB/s'"):
        bandwidth(low="9 GB/s")


@pytest.mark.parametrize(
    ("node", "text"),
    [
        ({"cores": {"value": 4}}, "source"),
        ({"cores": {"value": 4, "source": "memory"}}, "node.cores names source 'memory'"),
        ({"cores": {"value": 0, "source": "docs"}}, "greater than 0"),
        ({"cores": 4}, "node.cores"),
        (
            {"cores": {"value": 4, "source": "docs"}, "memory": {"value": "96 GB/s", "source": "docs"}},
            "is not in bytes",
        ),
        (
            {"cores": {"value": 4, "source": "docs"}, "memory": {"value": "0 GB", "source": "docs"}},
            "not positive",
        ),
        ({"cores": {"value": 4, "source": "docs", "kind": "recalled"}}, "kind"),
    ],
)
def test_a_fact_without_a_unit_or_a_source_is_refused(node, text):
    with pytest.raises(ValidationError) as caught:
        described(node=node)
    assert text in str(caught.value)
