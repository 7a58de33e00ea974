"""Where and with what a study was measured: a row per setting, with values that differ."""

from typing import Any

from dlscale.analysis.findings.environment import FINDING
from dlscale.analysis.load import Study
from dlscale.benchmarks.records.record import Record
from tests.made_records import NODE, in_detail, make_record


def values(*records: Record) -> dict[tuple[str, str], Any]:
    frame = FINDING.of(Study(records))
    return {(row["what"], row["setting"]): row for row in frame.to_dict("records")}


def test_a_value_that_differs_is_there_once_each() -> None:
    records = [make_record(block=block, system=system) for block, system in enumerate(("b", "a", "b"))]
    found = values(*records)["system", "name"]
    assert (found["value"], found["num_values"]) == ("a | b", 2)
    assert FINDING.sentence(FINDING.of(Study(records))) == "Not the same in all records: system: name."


def test_settings_of_a_backend_are_its_own() -> None:
    found = values(in_detail(make_record()), in_detail(make_record(backend="ring", num_ranks=2)))
    assert found["none in torch", "overlap"]["value"] == "False"
    assert (found["ring in torch", "overlap"]["value"], found["ring in torch", "overlap"]["backend"]) == (
        "True",
        "ring",
    )
    assert found["variables", "OMP_NUM_THREADS"]["framework"] == "torch"
    assert found["study", "budget"]["value"] == "240 s"


def test_many_values_are_cut() -> None:
    found = values(
        *(make_record(block=block, study=f"s{block}", fingerprint=f"{block}" * 12) for block in range(9))
    )
    assert found["code", "fingerprint"]["num_values"] == 9
    assert found["code", "fingerprint"]["value"].endswith("555555555555 | 3 more")


def test_facts_of_nodes_that_differ_name_them() -> None:
    record = make_record(num_ranks=2)
    nodes = [
        NODE.model_copy(update={"node": name, "cpu_governor": kind, "load_before": load})
        for name, kind, load in (("n2", "performance", 1.0), ("n1", "powersave", 0.5))
    ]
    again = record.model_copy(update={"nodes": [nodes[0].model_copy(update={"load_before": 0.2})]})
    found = values(record.model_copy(update={"nodes": nodes}), again)
    assert found["nodes", "names"]["value"] == "n | n1 | n2"
    assert found["nodes", "cpu_governor"]["value"] == "not known (n) | powersave (n1) | performance (n2)"
    assert "1 (n2)" in found["nodes", "load_before"]["value"]
    assert ("nodes", "container") not in found  # no node tells
