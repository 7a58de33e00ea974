"""Lines for Extra-P, held to what its reader asks for (extrap 4.2.5, jsonlines_file_reader.py and io_helper.py)."""

import json

from dlscale.analysis.findings.startup import PHASES
from dlscale.analysis.render.extrap import extrap_models
from dlscale.benchmarks.records.record import Phases
from tests.made_records import make_record


def read(lines):
    """As Extra-P: (callpath, metric) -> coordinate -> repetitions."""
    found = {}
    for line in lines:
        one = json.loads(line)
        assert set(one) == {"params", "callpath", "metric", "value"}
        assert isinstance(one["value"], float)
        points = found.setdefault((one["callpath"], one["metric"]), {})
        points.setdefault(tuple(one["params"].items()), []).append(one["value"])
    return found


def test_every_callpath_of_a_file_has_the_same_points():
    def phases(num_ranks, missing):
        seconds = {name: [1.0 * num_ranks] * num_ranks for name in (*PHASES, "warm_up")}
        return Phases(**(seconds | {missing: [None] * num_ranks} if missing else seconds))

    records = [
        make_record(backend=backend, num_ranks=n, block=b).model_copy(
            update={"phases": phases(n, "connect" if (backend, n) == ("ring", 4) else None)}
        )
        for backend, ranks in (("none", (1, 2)), ("ring", (2, 4, 8)))
        for n in ranks
        for b in range(2)
    ]
    none, ring = extrap_models(records)
    for one in (none, ring):
        assert len({tuple(points) for points in read(one.lines).values()}) == 1
    assert (none.num_points, ring.num_points) == (2, 3)
    assert (none.left_out, ring.left_out) == ((), ("connect",))
    assert ("ring->start->gates", "time") in read(ring.lines)


def test_what_is_not_one_curve_is_not_one_file():
    records = [
        make_record(
            backend="ring", num_ranks=n, scaling_mode=mode, local_batch=8 // n if mode == "strong" else 8
        )
        for mode in ("weak", "strong")
        for n in (1, 2)
    ]
    records += [make_record(backend="ring", num_ranks=2, backend_options={"chunk_bytes": 65536})]
    records += [make_record(backend="ring", num_ranks=4, num_nodes=2, evidence="emulated")]
    found = extrap_models(records)
    assert sorted((one.family.scaling_mode, one.name) for one in found) == [
        ("strong", "ring"),
        ("weak", "ring"),
        ("weak", "ring (chunk_bytes=65536)"),
        ("weak", "ring, emulated"),
    ]
    assert len({one.stem for one in found}) == 4


def test_controls_and_failures_are_no_measurements():
    assert (
        extrap_models(
            [make_record(failure="died"), make_record(control="loader"), make_record(control="canary")]
        )
        == []
    )


def test_no_name_makes_another_call():
    (found,) = extrap_models([make_record(backend="ring", backend_options={"order": "a->b"})])
    assert json.loads(found.lines[0])["callpath"].count("->") == 1
