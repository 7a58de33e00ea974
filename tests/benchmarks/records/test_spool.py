"""Events come back from a spool as they were written, and anything else is refused in one line."""

import dataclasses
import os
import re
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

from dlscale.benchmarks.records import spool
from dlscale.benchmarks.records.spool import RankEnd, SpoolWriter, read_spools


def example(kind):
    """An event of that kind, each field with a value of its first type."""
    hints = get_type_hints(kind)
    return kind(**{field.name: _value(hints[field.name]) for field in dataclasses.fields(kind)})


def _value(hint):
    if get_origin(hint) is Literal:
        return get_args(hint)[0]
    if get_origin(hint) in (Union, UnionType):
        return _value(get_args(hint)[0])
    if get_origin(hint) is list:
        return [_value(get_args(hint)[0])] * 2
    return {
        str: "text",
        int: 7,
        float: 1.5,
        bool: True,
        dict[str, float]: {"a": 0.5},
        dict[str, int]: {"a": 3},
        dict[str, Any]: {"a": [0.5]},
        dict[str, spool.Setting]: {"b": "c"},
    }[hint]


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
    assert not read.of(kind, 9)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"event": "hello", "rank": 0}', "unknown event 'hello'"),
        ('{"rank": 0}', "unknown event 'None'"),
        ('{"event": "end", "status": 0, "colour": "red"}', "event end: .*'colour'"),
        ('{"event": "end"}', "event end: .*'status'"),
        ('{"event": "end", "sta', "Unterminated string"),
        ('{"event": "end", "status": "0"}', "event end, status: .*integer"),
        ('{"event": "end", "status": true}', "event end, status: .*integer"),
    ],
)
def test_a_line_of_another_version_is_damage_with_its_place(tmp_path, line, problem):
    (tmp_path / "rank-00000.jsonl").write_text('{"event": "end", "status": 0}\n' + line + "\n")
    (found,) = read_spools(tmp_path, 1)
    assert re.match(rf"rank-00000.jsonl, line 2: {problem}", found.damage)
    assert found.events == [(None, RankEnd(0))]


def test_a_spool_that_is_no_file_is_damage_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "rank-00000.jsonl")
    (tmp_path / "rank-00001.jsonl").mkdir()
    first, second = read_spools(tmp_path, 2)
    assert first.damage == "rank-00000.jsonl: not a regular file"
    assert second.damage == "rank-00001.jsonl: Is a directory"


def test_the_line_in_which_a_rank_was_killed_is_left_out(tmp_path):
    (tmp_path / "rank-00000.jsonl").write_text('{"event": "end", "status": 0}\n{"event": "window", "pha')
    first, second = read_spools(tmp_path, 2)
    assert first.of(RankEnd) == [RankEnd(0)]
    assert second.events == []
    assert second.info is None
