"""What becomes of the spools that a killed dlscale left behind."""

from dlscale.base.files import make_folder
from dlscale.benchmarks.launch.supervisor import METADATA_FILE, collect_leftovers
from dlscale.benchmarks.rank.launch import LaunchSpec
from dlscale.benchmarks.records.assemble import LaunchMetadata
from dlscale.benchmarks.records.spool import SPEC_FILE
from dlscale.benchmarks.records.store import Store
from dlscale.benchmarks.study.study import Rules


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
