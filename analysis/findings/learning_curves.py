"""The way of every training with a target: its loss and its metric against time, epochs and steps.

A drawing of hundreds of trainings with thousands of evaluations has more points than anyone sees and more than browsers
can take. It is thinned by one rule, which it states; tables and CSV files keep every evaluation.
"""

from __future__ import annotations

from collections.abc import Sequence

LEAST_DRAWN = 20  # evaluations of a training, however many trainings there are


def drawn_per_training(num_trainings: int, *, most: int) -> int:
    """How many evaluations of each training are drawn if all trainings together may have about `most`."""
    return max(LEAST_DRAWN, most // max(num_trainings, 1))


def thinned(values: Sequence[float], most: int) -> list[int]:
    """The places, ascending, of at most `most` of the values (4 or more) that show how they went.

    The first and the last, and the least and the greatest of equal groups of those between: no peak is lost, and no
    value is made up. All of them where there are no more.
    """
    num_values = len(values)
    if num_values <= most:
        return list(range(num_values))
    num_groups = (most - 2) // 2
    kept = {0, num_values - 1}
    for group in range(num_groups):
        begin = 1 + group * (num_values - 2) // num_groups
        end = 1 + (group + 1) * (num_values - 2) // num_groups
        kept |= {
            min(range(begin, end), key=values.__getitem__),
            max(range(begin, end), key=values.__getitem__),
        }
    return sorted(kept)


def thinning_text(longest: int, most: int) -> str:
    """The sentence that says what is not drawn of trainings of up to `longest` evaluations; empty if everything is."""
    if longest <= most:
        return ""
    return (
        f"At most {most} evaluations of each training are drawn: the first, the last, and the least and the greatest "
        f"of equal groups of up to {longest}; the CSV file of evaluations has all."
    )
