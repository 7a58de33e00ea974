"""Compressed cells beside uncompressed ones, from records with known speeds and qualities."""

import pytest

from dlscale.analysis.findings.compression import compressed_cells
from dlscale.analysis.measured import measure
from dlscale.analysis.records import wire_bytes, wire_share
from dlscale.benchmarks.cli import main
from tests.analysis.reading import data_of, screen_text
from tests.made_records import TARGET, make_record, solved, write_study

TOPK = {"compression": "topk", "topk_share": 0.02}


def record(options, *, told=None, target=None, block=0, **fields):
    made = make_record(
        backend="mpi",
        num_ranks=2,
        backend_options=options,
        block=block,
        **({"target": TARGET, "local_batch": 16} if target else {}),
        **fields,
    )
    settings = {"bucket_bytes": "300,100", **(told or {})}
    made = made.model_copy(update={"backend_settings": settings})
    if not target:
        return made
    found = [{"step": step, "seconds": step * 0.1, "auc": auc} for step, auc in target["auc"].items()]
    return solved(made, *found, end=target.get("end", "reached"))


def study(*, plain, compressed, blocks=3):
    records = []
    for block in range(blocks):
        records.append(record({"compression": "none"}, target=plain, block=block))
        told = {"compression": "topk", "wire_bytes": 40}
        records.append(record(TOPK, told=told, target=compressed, block=block))
    return records


def compared(records):
    (cell,) = compressed_cells(measure(records).launches)
    return cell


PLAIN = {"auc": {10: 0.5, 20: 0.8, 30: 0.95}}


@pytest.fixture
def status(tmp_path):
    """The exit status of a report of these records."""

    def ask(records):
        folder = tmp_path / f"study-{len(list(tmp_path.iterdir()))}"
        write_study(folder, records, planned=True, study={"backends": ["mpi"]})
        with pytest.raises(SystemExit) as ended:
            main(["report", str(folder)])
        return ended.value.code

    return ask


def test_a_failed_gate_is_a_failed_report(status):
    assert status(study(plain=PLAIN, compressed={"auc": {10: 0.5, 20: 0.8, 30: 0.95}})) == 0
    missed = {"auc": {10: 0.5, 20: 0.8, 30: 0.85}, "end": "budget"}
    assert status(study(plain=PLAIN, compressed=missed)) == 2


def test_a_training_that_learns_as_well_passes():
    cell = compared(study(plain=PLAIN, compressed={"auc": {10: 0.5, 20: 0.796, 30: 0.7, 40: 0.95}}))
    assert cell.gate == "passed"
    assert cell.quality_change.center == pytest.approx(-0.005), "where neither of them ended"
    assert cell.samples_ratio.center == pytest.approx(4 / 3)
    assert (cell.wire_bytes, cell.wire_share) == (40, pytest.approx(0.1))
    assert cell.reference.backend_options == {"compression": "none"}
    assert "1.33 [1.33, 1.33] times as many samples needed" in cell.text
    assert "accuracy gate passed" in cell.text


@pytest.mark.parametrize(
    ("compressed", "num_reached", "words"),
    [
        ({"auc": {10: 0.5, 20: 0.78, 30: 0.95}}, 3, "2.50 % worse after as many samples (1 % is allowed)"),
        ({"auc": {10: 0.5, 20: 0.8, 30: 0.8}, "end": "budget"}, 0, "3 of 3 trainings missed the target"),
    ],
)
def test_what_is_worse_or_misses_the_target_fails(compressed, num_reached, words):
    cell = compared(study(plain=PLAIN, compressed=compressed))
    assert (cell.gate, cell.num_reached, cell.num_trainings) == ("failed", num_reached, 3)
    assert (cell.samples_ratio is None) == (num_reached == 0)
    assert words in cell.text


def test_where_the_uncompressed_one_misses_nothing_is_judged():
    missed = {"auc": {10: 0.5, 20: 0.8, 30: 0.8}, "end": "budget"}
    cell = compared(study(plain=missed, compressed=PLAIN))
    assert cell.gate == "not judged"
    only = [one for one in study(plain=PLAIN, compressed=PLAIN) if "wire_bytes" in one.backend_settings]
    assert compared(only).why == "no uncompressed training of the same backend and ranks"


def test_a_study_of_throughput_says_that_quality_was_not_measured():
    cell = compared(study(plain=None, compressed=None))
    assert cell.rate_ratio.center == pytest.approx(1)
    assert "quality not measured: dlscale run time-to-solution" in cell.text
    assert "--set backend_options='mpi.compression=none|topk,mpi.topk_share=0.02' --ranks 2" in cell.text


def test_the_row_is_in_every_report():
    records = study(plain=PLAIN, compressed={"auc": {10: 0.5, 20: 0.7, 30: 0.95}})
    table = measure(records)
    (row,) = data_of(table)["compression"]
    assert (row["accuracy_gate"], row["wire_bytes"], row["quality_tolerance"]) == ("failed", 40, 0.01)
    assert "accuracy gate failed: 12.5 % worse" in screen_text(table)
    assert not data_of(measure([records[0]]))["compression"]


@pytest.mark.parametrize(
    ("told", "sent", "share"),
    [
        ({"wire_bytes": 40}, 40, 0.1),
        ({"wire_bytes": "40 | 60"}, 50, 0.125),
        ({}, None, None),
    ],
)
def test_bytes_are_read_as_the_backend_counted_them(told, sent, share):
    made = record({}, told=told)
    assert (wire_bytes(made), wire_share(made)) == (sent, share)
