"""Quantities as people write and read them; wrong units and missing sources are refused."""

from functools import partial

import pytest
from pydantic import ValidationError

from dlscale.base.quantities import (
    format_seconds,
    format_size,
    parse_counts,
    parse_quantity,
    parse_seconds,
    split_list,
)
from dlscale.benchmarks.systems.system import System

KIB, MIB = 2**10, 2**20
SIZES = partial(parse_counts, sizes=True)
READ = {
    parse_seconds: {"90": 90, "240s": 240, "4min": 240, "1.5 h": 5400, "2m": 120, "01:30:00": 5400},
    parse_counts: {
        "1,2,4": [1, 2, 4],
        "4 2 2": [2, 4],
        "1:4": [1, 2, 3, 4],
        "1:512:x2": [1, 2, 4, 8, 16, 32, 64, 128, 256, 512],
        "2:9:3": [2, 5, 8],
    },
    SIZES: {
        "4KiB": [4 * KIB],
        "25MiB,4KiB": [4 * KIB, 25 * MIB],
        "4KiB:1MiB:x4": [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB],
        "1MiB:8MiB": [MIB, 2 * MIB, 4 * MIB, 8 * MIB],
        "4KiB:10KiB 8KiB": [4 * KIB, 8 * KIB],
        "512B,0.5KiB,1024": [512, 1024],
    },
    split_list: {"a, b c,,d": ["a", "b", "c", "d"]},
}
REFUSED = {
    parse_seconds: ("duration", ["", "four", "-3s", "3 days", "4min2", "1:30", "1:60:00"]),
    parse_counts: (
        "count",
        ["0", "a", "4:1", "1:8:x1", "1:8:0", "1-4", "1:9999999999", "1:2000", "9" * 5000],
    ),
    SIZES: ("4KiB", ["big", "4kb", "3", "0", "8KiB:4KiB", "4KiB:8KiB:x1", "4KiB:8KiB:2", "1:2:x2:3"]),
}
QUANTITIES = {
    ("96 GB", "bytes"): 96e9,
    ("16GiB", "bytes"): 16 * 2**30,
    ("8 GB/s", "bytes per second"): 8e9,
    ("200 Gb/s", "bytes per second"): 25e9,
    ("40 Gbit/s", "bytes per second"): 5e9,
    ("1.3 us", "seconds"): 1.3e-6,
    ("48h", "seconds"): 172800.0,
    ("29.5 PFLOP/s", "operations per second"): 29.5e15,
    ("1.4 GHz", "hertz"): 1.4e9,
}


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [(read, text, value) for read, cases in READ.items() for text, value in cases.items()],
)
def test_what_people_type(read, text, value):
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "words", "text"),
    [(read, words, text) for read, (words, texts) in REFUSED.items() for text in texts],
)
def test_what_is_none_is_refused(read, words, text):
    with pytest.raises(ValueError, match=words):
        read(text)


def test_what_people_read():
    seconds = [format_seconds(number) for number in (0.4, 59, 60, 3599, 3660)]
    assert seconds == ["0 s", "59 s", "1 min 00 s", "59 min 59 s", "1 h 01 min"]
    sizes = [format_size(number) for number in (4 * KIB, 25 * MIB, 100, 1536)]
    assert sizes == ["4 KiB", "25 MiB", "100 B", "1.5 KiB"]


@pytest.mark.parametrize(("given", "number"), QUANTITIES.items())
def test_a_quantity_in_its_base_unit(given, number):
    assert parse_quantity(*given) == pytest.approx(number, rel=1e-12)


@pytest.mark.parametrize(
    "text", ["8 GB", "8", "GB/s", "8 Gflops", "-8 GB/s", "8 gB/s", "8 GB/s per node", ""]
)
def test_another_dimension_or_none_is_refused(text):
    with pytest.raises(ValueError, match="is not in bytes per second; write, for example, 8 GB/s"):
        parse_quantity(text, "bytes per second")


def described(**changes):
    names = {"name": "one", "title": "One", "scheduler": "none", "launcher": "mpiexec"}
    own = {"current": {"prefix": ".venv", "setup": "make"}}
    node = {"cores": {"value": 4, "source": "docs"}}
    sources = {"docs": "the centre's page"}
    return System.model_validate({**names, "sources": sources, "node": node, "environments": own, **changes})


def fabric(**limits):
    fact = {"value": "8 GB/s", "source": "docs", "kind": "table"} | limits
    return described(fabric={"name": {"value": "Aries", "source": "docs"}, "bandwidth": fact})


def test_where_sources_differ_a_quantity_has_limits():
    plain = fabric().fabric.bandwidth
    assert (plain.factors, plain.text) == ((1.0, 1.0), "8 GB/s")
    wide = fabric(low="6000 MB/s", high="10 GB/s").fabric.bandwidth
    assert (wide.factors, wide.text) == ((0.75, 1.25), "8 GB/s (6000 MB/s to 10 GB/s)")
    with pytest.raises(ValidationError, match="not between low and high"):
        fabric(low="9 GB/s")
