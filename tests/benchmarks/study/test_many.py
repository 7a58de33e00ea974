"""What many cases and records may cost: the limits for 100,000 in proportion, three times as long for busy machines."""

import time

import pytest

from dlscale.benchmarks.records.files import summaries
from dlscale.benchmarks.records.store import Store
from dlscale.benchmarks.study.expand import expand
from dlscale.benchmarks.study.sizes import shape
from dlscale.benchmarks.study.study import load_study
from dlscale.benchmarks.systems.system import load_system

NUM_RECORDS = 2000
BUSY = 3


def seconds(work, times=3):
    """The best of a few times."""
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin)
    return min(taken)


@pytest.fixture
def store(tmp_path, make_record):
    """Records of that many cases."""
    store = Store(tmp_path / "study")
    store.open({"launches": []})
    record = make_record()
    text = record.model_dump_json()
    for block in range(NUM_RECORDS):
        path = store.records_folder / f"{record.case.cell.id}-{block:02d}.1.json"
        path.write_text(text.replace('"block":0', f'"block":{block}'))
    assert len(summaries(store.folder)[0]) == NUM_RECORDS
    return store


def test_listing_records(store):
    begin = time.process_time()
    summaries(store.folder)
    assert time.process_time() - begin < BUSY * 5 * NUM_RECORDS / 100_000


def test_work_per_record_does_not_grow_with_their_number(store, make_record):
    case = make_record(7).case
    assert store.next_attempt(case) == 2
    begin = time.perf_counter()
    for attempt in range(2, 1002):
        assert store.next_attempt(case) == attempt
        store._known()[case.id].add(attempt)  # what `add` does but for the disk
    assert time.perf_counter() - begin < BUSY * 0.2


def test_writing_a_record(store, make_record):
    record = make_record(7)
    attempts = iter(range(2, 100))

    def one_more():
        store.add(record.model_copy(update={"attempt": next(attempts)}))

    assert seconds(one_more, times=10) < BUSY * 0.05


def test_planning_ten_thousand_cases():
    study = load_study(
        "weak-scaling",
        workloads=["all"],
        frameworks=["all"],
        backends=["none", "ring", "mpi", "horovod"],
        ranks=[1, 2, 4, 8, 16, 32],
        launches=53,
    )
    system = load_system("local")

    def plan():
        made = expand(
            study, environment="here", shape=shape(study, system), data="synthetic", policy=system.policy
        )
        assert sum(len(launch.cases) for launch in made.launches) > 10_000
        return made.digest, [made.seconds([launch]) for launch in made.launches]

    assert seconds(plan, times=2) < BUSY * 2
