"""What becomes of the spools that a killed dlscale left behind."""

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.launch.supervisor import collect_leftovers
from dlscale.benchmarks.rank.checkpoints import save_checkpoint
from dlscale.benchmarks.records.cell import Target
from dlscale.benchmarks.records.spool import MeasuredWindow, Resumption, SpoolWriter
from dlscale.benchmarks.records.store import Store
from dlscale.benchmarks.study.rules import Rules
from tests.benchmarks.spools import launch_spec, leave_launch, metadata_of

TARGET = Target(
    metric="auc", threshold=0.9, held_out=0.1, evaluate_every=10, max_seconds=60.0, learning_rate=1e-3
)


def test_a_launch_killed_between_two_of_its_records_gets_the_other_one_only(tmp_path, make_record):
    store = Store(tmp_path / "study")
    store.open({"launches": []})
    first, second = make_record(0), make_record(1)
    store.add(first)
    folder = tmp_path / "spool" / first.case.id
    leave_launch(folder, launch_spec(first.case, second.case), metadata_of(first))

    collect_leftovers(folder.parent, store, planned=[folder.name])
    records = {(record.case.block, record.attempt): record for record in store.load()}
    assert set(records) == {(0, 1), (1, 1)}
    assert records[0, 1] == first
    assert records[1, 1].failure.kind == "interrupted"
    assert not folder.exists()


def test_only_folders_of_planned_cases_are_cleared(tmp_path, make_record):
    store = Store(tmp_path / "study")
    store.open({"launches": []})
    case, mine = make_record(0).case.id, store.spool_folder / "papers"
    mine.mkdir()
    (mine / "thesis.tex").write_text("thesis")
    collect_leftovers(store.spool_folder, store, planned=[case])
    assert (mine / "thesis.tex").read_text() == "thesis"
    (store.spool_folder / case).symlink_to(mine)
    with pytest.raises(UsageError, match="is a symbolic link"):
        collect_leftovers(store.spool_folder, store, planned=[case])
    assert (mine / "thesis.tex").read_text() == "thesis"


def test_the_state_of_a_killed_training_stays(tmp_path, make_record):
    store = Store(tmp_path / "study")
    store.open({"launches": []})
    record = make_record(0)
    case = record.case.model_copy(update={"cell": record.case.cell.model_copy(update={"target": TARGET})})
    checkpoints = str(tmp_path / "study" / "checkpoints")
    spec = launch_spec(case, rules=Rules(checkpoint_every=10), checkpoints=checkpoints)
    for begin, saved in ((0, 10), (10, 20)):
        started = {"started_at": f"2026-01-01T00:00:{begin:02}+00:00"}
        folder = store.spool_folder / case.id
        leave_launch(folder, spec, metadata_of(record).model_copy(update=started))
        for rank in range(2):
            spool = SpoolWriter(folder, rank)
            if begin:
                spool.write(Resumption(step=begin, seconds=0.1), case=0)
            for step in range(begin, saved + 5, 5):
                spool.write(
                    MeasuredWindow(phase="steady", num_steps=5, start=float(step), seconds=1.0), case=0
                )
            spool.close()
        save_checkpoint(spec.checkpoints_of(case), {}, step=saved)
        collect_leftovers(store.spool_folder, store, planned=[folder.name])
    records = sorted(store.load(), key=lambda record: record.attempt)
    assert [one.resumed and one.resumed.step for one in records] == [None, 10]
    assert spec.checkpoints_of(case).exists(), "the next attempt goes on from it"
