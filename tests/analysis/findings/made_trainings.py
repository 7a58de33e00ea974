"""Made-up trainings to a target, with known times."""

from dlscale.benchmarks.records.record import TrainingLaunch
from tests.made_records import TARGET, make_record, solved

LAUNCH = 2.1  # start 1, import 0.1 and connect 1, as the made-up records have them
SET_UP, EVALUATING = 0.4, 0.5


def training(*, steps, step_seconds, end="reached", auc=0.95, num_training=None, **fields):
    """A training of that many steps, evaluated half-way and at its end."""
    record = make_record(**{"target": TARGET} | fields, local_batch=16)
    half = {
        "step": steps // 2,
        "seconds": steps // 2 * step_seconds,
        "evaluating": EVALUATING / 2,
        "auc": 0.5,
    }
    last = {"step": steps, "seconds": steps * step_seconds, "evaluating": EVALUATING, "auc": auc}
    return solved(record, half, last, end=end, set_up_seconds=SET_UP, num_training=num_training)


def one_and_two_ranks(changed=None, *, num_seeds=6):
    """2 ranks step 1.6 times as fast as 1 rank, of twice the samples, and need 1.2 times as many samples."""
    records = []
    for block in range(num_seeds):
        noise = 1 + 0.02 * block
        both = {"steps": 120, "step_seconds": 0.1 / 0.8 * noise} | (changed or {}).get(block, {})
        records.append(training(block=block, steps=200, step_seconds=0.1 * noise))
        records.append(training(backend="ring", num_ranks=2, block=block, **both))
    return records


def saved(record, *launches):
    return record.model_copy(update={"launches": [TrainingLaunch(**one) for one in launches]})


def part(first, *, start=2.5):
    """A launch of a saved training, from step `first`."""
    restoring = 0.25 if first else 0.0
    return {
        "first_step": first, "start_seconds": start, "restoring_seconds": restoring, "saving_seconds": 1.0,
    }  # fmt: skip
