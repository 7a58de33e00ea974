"""Plan files: what is refused and how it is said; and how times become switch points."""

import json
import os
from pathlib import Path

import pytest

from dlscale.base.errors import UsageError
from dlscale.collectives.ring.plan import (
    ENGINE_VERSION,
    NO_LIMIT,
    CopyVariant,
    NetworkPlan,
    NodePlan,
    PlanKey,
    Segment,
    Timing,
    TuningPlan,
    read_plan,
    write_plan,
)
from dlscale.collectives.ring.trials import best_overall, clearly_fastest, switch_points

KEY = PlanKey(num_ranks=4, num_nodes=2, node_size=2, num_lanes=2, mpi="MPICH Version: 5.0.2", cpu="a CPU")


def a_plan(key=KEY):
    return TuningPlan(
        key=key,
        node=NodePlan(
            one_shot_bytes=32768,
            variants=[CopyVariant(chunk_bytes=2**19, prefetch=False, streaming=True)],
            block_bytes=2**23,
        ),
        network=NetworkPlan(
            one_shot_bytes=0,
            recursive_doubling_bytes=2**14,
            halving_doubling_bytes=2**19,
            direct_bytes=2**16,
            tree_bytes=2**16,
            segments=[
                Segment(up_to_bytes=2**22, segment_bytes=2**16),
                Segment(up_to_bytes=NO_LIMIT, segment_bytes=2**18),
            ],
            direct_segment_bytes=2**16,
            window=4,
        ),
        timings=[Timing(question="blocks", message_bytes=1024, default="a", seconds={"a": 1.5, "b": 2.0})],
    )


def test_what_is_written_is_read_again(tmp_path):
    path = tmp_path / "plan.json"
    write_plan(a_plan(), path)
    loaded = read_plan(path, KEY)
    assert loaded.plan == a_plan()
    assert loaded.name == "plan.json"
    assert [file.name for file in tmp_path.iterdir()] == ["plan.json"]  # nothing temporary is left


def test_the_names_in_the_file_stay(tmp_path):
    """Plans written by earlier versions are read, and name the variants by a key of their own."""
    write_plan(a_plan(), tmp_path / "plan.json")
    node = json.loads((tmp_path / "plan.json").read_text())["node"]
    assert node["manners"] == [{"chunk_bytes": 2**19, "ahead": False, "streaming": True}]


def test_the_digest_is_that_of_the_file(tmp_path):
    first, second, third = (tmp_path / name for name in ("first.json", "second.json", "third.json"))
    write_plan(a_plan(), first)
    write_plan(a_plan(), second)
    write_plan(a_plan().model_copy(update={"timings": []}), third)
    digests = [read_plan(path, KEY).digest for path in (first, second, third)]
    assert digests[0] == digests[1] != digests[2]


def test_a_plan_that_cannot_be_written_is_one_line(tmp_path):
    with pytest.raises(UsageError, match=r"cannot write .*choose another place for the plan") as caught:
        write_plan(a_plan(), tmp_path / "no folder" / "plan.json")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(UsageError, match=r"cannot be read: No such file .*dlscale collectives tune"):
        read_plan(tmp_path / "plan.json", KEY)


def changed(**changes):
    """The text of a plan with other values at the given places, `a__b` for b in a."""
    content = json.loads(a_plan().model_dump_json(by_alias=True))
    for place, value in changes.items():
        *path, last = place.split("__")
        part = content
        for name in path:
            part = part[name]
        if value is None:
            del part[last]
        else:
            part[last] = value
    return json.dumps(content)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "Invalid JSON"),
        ("{", "Invalid JSON"),
        ("[]", "is no plan"),
        (changed(schema=2), "schema"),
        (changed(key=None), "key: Field required"),
        (changed(key__num_ranks="4"), "key.num_ranks: Input should be a valid integer"),
        (changed(key__num_ranks=0), "key.num_ranks"),
        (
            changed(node__manners=[{"chunk_bytes": 2**19, "ahead": 1, "streaming": False}]),
            "node.manners.0.ahead",
        ),
        (changed(node__manners=[{"chunk_bytes": 3, "ahead": True, "streaming": False}]), "chunk_bytes"),
        (
            changed(node__manners=9 * [{"chunk_bytes": 2**19, "ahead": True, "streaming": False}]),
            "at most 8 items",
        ),
        (changed(node__block_bytes=1.5), "node.block_bytes"),
        (changed(node__speed=11), "node.speed: Extra inputs are not permitted"),
        (changed(network__window=0), "network.window"),
        (changed(network__one_shot_bytes=-1), "network.one_shot_bytes"),
        (changed(network__segments=[]), "network.segments"),
        (changed(network__segments=[{"up_to_bytes": 2**20, "segment_bytes": 2**16}]), "end with"),
        (changed(network__direct_segment_bytes=2**31), "network.direct_segment_bytes"),
    ],
)
def test_what_is_no_plan_is_told_in_one_line(tmp_path, text, says):
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="is no plan") as caught:
        read_plan(path, KEY)
    assert says in str(caught.value)
    assert "dlscale collectives tune" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_ranks", 3),
        ("num_nodes", 1),
        ("node_size", 4),
        ("num_lanes", 1),
        ("mpi", "Open MPI v5.0.11"),
        ("cpu", "another CPU"),
        ("operation", "broadcast"),
        ("dtype", "float64"),
        ("engine", ENGINE_VERSION + 1),
    ],
)
def test_a_plan_for_something_else_says_what_differs(tmp_path, name, value):
    path = tmp_path / "plan.json"
    write_plan(a_plan(KEY.model_copy(update={name: value})), path)
    with pytest.raises(UsageError) as caught:
        read_plan(path, KEY)
    text = str(caught.value)
    assert f"was made for {name} {value!r}, but here it is {getattr(KEY, name)!r}" in text
    assert "\n" not in text


@pytest.mark.parametrize("path", ["/", "/dev/zero"])
def test_a_folder_or_device_is_no_plan(path):
    with pytest.raises(UsageError, match="cannot be read"):
        read_plan(Path(path), KEY)


def test_a_pipe_is_no_plan(tmp_path):
    os.mkfifo(path := tmp_path / "plan.json")
    with pytest.raises(UsageError, match="cannot be read"):
        read_plan(path, KEY)


# ---- from times to switch points


def test_what_is_only_a_little_faster_does_not_replace_the_default():
    assert clearly_fastest({"a": 1.00, "b": 0.98}, "a") == "a"
    assert clearly_fastest({"a": 1.00, "b": 0.90}, "a") == "b"
    assert best_overall({1: {"a": 1.0, "b": 0.8}, 2: {"a": 1.0, "b": 1.1}}, "a") == "b"
    assert best_overall({1: {"a": 1.0, "b": 0.8}, 2: {"a": 1.0, "b": 1.3}}, "a") == "a"


def table(*rows):
    """Seconds of ways a, b and c for 1 KiB, 4 KiB, 16 KiB ..."""
    return {1024 * 4**i: dict(zip("abc", row, strict=False)) for i, row in enumerate(rows)}


@pytest.mark.parametrize(
    ("rows", "limits"),
    [
        # Each serves a stretch; a limit lies between the sizes at which the ways change.
        ([(1, 2, 3), (1, 2, 3), (2, 1, 3), (3, 2, 1)], [8192, 32768]),
        # One odd time does not tear a stretch apart.
        ([(1, 2, 9), (2.1, 2, 9), (1, 2, 9), (9, 9, 1)], [32768, 32768]),
        # The middle way never pays.
        ([(1, 2, 3), (3, 2, 1)], [2048, 2048]),
        # The last serves all.
        ([(2, 2, 1), (3, 3, 1)], [0, 0]),
        # Beyond what was tried the defaults hold.
        ([(1, 2, 3), (1, 2, 3)], [10_000, 500_000]),
        ([(2, 1, 3), (2, 1, 3)], [0, 500_000]),
    ],
)
def test_each_way_serves_a_stretch_of_sizes(rows, limits):
    assert switch_points(table(*rows), "abc", [10_000, 500_000]) == limits


def test_without_times_the_defaults_hold_by_themselves():
    assert switch_points(table((1, 2, 3)), "abc", [4096, 8192]) == [4096, 8192]
