"""Events come back from a spool as they were written, and anything else is refused in one line."""

import dataclasses
from typing import get_args

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.records import spool
from dlscale.benchmarks.records.spool import RankEnd, SpoolWriter, read_spools


def example(kind):
    """An event of that kind; JSON has no tuples and no other types than these."""
    values = {
        field.name: [1.5, 2.5] if "list" in field.type else "text" for field in dataclasses.fields(kind)
    }
    return kind(**values)


@pytest.mark.parametrize("kind", get_args(spool.Event))
@pytest.mark.parametrize("case", [None, 0, 3])
def test_every_event_comes_back(tmp_path, kind, case):
    event = example(kind)
    writer = SpoolWriter(tmp_path, 0)
    writer.write(event, case=case)
    writer.close()
    (read,) = read_spools(tmp_path, 1)
    assert read.events == [(case, event)]
    assert read.of(kind, case) == [event]
    assert read.of(kind, 9) == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"event": "hello", "rank": 0}', "unknown event 'hello'"),
        ('{"rank": 0}', "unknown event None"),
        ('{"event": "end", "status": 0, "colour": "red"}', "event end: .*'colour'"),
        ('{"event": "end"}', "event end: .*'status'"),
        ('{"event": "end", "sta', "Unterminated string"),
    ],
)
def test_a_line_of_another_version_is_refused_with_its_place(tmp_path, line, problem):
    (tmp_path / "rank-00000.jsonl").write_text('{"event": "end", "status": 0}\n' + line + "\n")
    with pytest.raises(UsageError, match=rf"rank-00000.jsonl, line 2: {problem}.* delete "):
        read_spools(tmp_path, 1)


def test_the_line_in_which_a_rank_was_killed_is_left_out(tmp_path):
    (tmp_path / "rank-00000.jsonl").write_text('{"event": "end", "status": 0}\n{"event": "window", "pha')
    first, second = read_spools(tmp_path, 2)
    assert first.of(RankEnd) == [RankEnd(0)]
    assert second.events == []
    assert second.info is None
