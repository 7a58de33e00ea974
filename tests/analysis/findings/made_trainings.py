"""Made-up trainings to a target, with known times."""

from dlscale.benchmarks.records.record import Checkpoint, Failure, Resumption
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


def saved(record, *begins, set_up=SET_UP):
    """The attempts of a training whose launches began at these steps, of which the last ended by itself."""
    attempts = []
    for attempt, begin in enumerate(begins, 1):
        own = {
            "attempt": attempt,
            "resumed": Resumption(step=begin, seconds=0.25) if begin else None,
            "checkpoints": [Checkpoint(step=begin + 10, seconds=1.0, num_bytes=8)],
        }
        if attempt < len(begins):
            columns = {"set_up": [set_up] * record.case.cell.num_ranks}
            own["phases"] = record.phases.model_copy(update=columns)
            own |= {"solution": None, "failure": Failure(kind="killed", rank=0, message="rank 0 died")}
        attempts.append(record.model_copy(update=own))
    return attempts
