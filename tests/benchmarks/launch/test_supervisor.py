"""What becomes of the spools that a killed dlscale left behind."""

from dlscale.base.files import make_folder
from dlscale.benchmarks.launch.supervisor import METADATA_FILE, collect_leftovers
from dlscale.benchmarks.rank.checkpoints import save_checkpoint
from dlscale.benchmarks.rank.spec import LaunchSpec
from dlscale.benchmarks.records.assemble import LaunchMetadata
from dlscale.benchmarks.records.spool import SPEC_FILE, MeasuredWindow, Resumption, SpoolWriter
from dlscale.benchmarks.records.store import Store
from dlscale.benchmarks.records.target import Target
from dlscale.benchmarks.study.rules import Rules

TARGET = Target(
    metric="auc", threshold=0.9, held_out=0.1, evaluate_every=10, max_seconds=60.0, learning_rate=1e-3
)


def test_a_launch_killed_between_two_of_its_records_gets_the_other_one_only(tmp_path, make_record):
    store = Store(tmp_path / "study")
    store.open({"launches": []})
    first, second = make_record(0), make_record(1)
    store.add(first)
    folder = tmp_path / "spool" / first.case.id
    make_folder(folder)
    spec = LaunchSpec(
        cases=[first.case, second.case], rules=Rules(), launched_at=0.0, seconds=1.0, data=None, seed=1
    )
    fields = {name: getattr(first, name) for name in LaunchMetadata.model_fields}
    (folder / SPEC_FILE).write_text(spec.model_dump_json())
    (folder / METADATA_FILE).write_text(LaunchMetadata(**fields).model_dump_json())

    assert collect_leftovers(folder.parent, store) == 1
    records = {(record.case.block, record.attempt): record for record in store.load()}
    assert set(records) == {(0, 1), (1, 1)}
    assert records[0, 1] == first
    assert records[1, 1].failure.kind == "interrupted"
    assert not folder.exists()


def test_each_killed_launch_of_a_training_knows_those_before_it(tmp_path, make_record):
    """Each loses its last window, of 5 steps."""
    store = Store(tmp_path / "study")
    store.open({"launches": []})
    record = make_record(0)
    case = record.case.model_copy(update={"cell": record.case.cell.model_copy(update={"target": TARGET})})
    spec = LaunchSpec(
        cases=[case],
        rules=Rules(checkpoint_every=10),
        launched_at=0.0,
        seconds=1.0,
        data=None,
        checkpoints=str(tmp_path / "study" / "checkpoints"),
        seed=1,
    )
    fields = {name: getattr(record, name) for name in LaunchMetadata.model_fields}
    for begin, saved in ((0, 10), (10, 20)):
        fields["started_at"] = f"2026-01-01T00:00:{begin:02}+00:00"
        folder = store.spool_folder / case.id
        make_folder(folder)
        (folder / SPEC_FILE).write_text(spec.model_dump_json())
        (folder / METADATA_FILE).write_text(LaunchMetadata(**fields).model_dump_json())
        for rank in range(2):
            spool = SpoolWriter(folder, rank)
            if begin:
                spool.write(Resumption(step=begin, seconds=0.1), case=0)
            for step in range(begin, saved + 5, 5):
                spool.write(MeasuredWindow("steady", 5, float(step), 1.0), case=0)
            spool.close()
        save_checkpoint(spec.checkpoints_of(case), {}, step=saved)
        assert collect_leftovers(store.spool_folder, store) == 1
    launches = store.latest(case).launches
    assert [(one.attempt, one.first_step, one.kept_step, one.lost_steps) for one in launches] == [
        (1, 0, 10, 5),
        (2, 10, 20, 5),
    ]
    assert spec.checkpoints_of(case).exists(), "the next attempt goes on from it"
