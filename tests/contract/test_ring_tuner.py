"""The autotuner on the ranks of this launch, with next to no time: what it writes is a plan that the ring takes."""

import hashlib

import numpy as np
import pytest

from dlscale.base.errors import UsageError

KIB = 1024


@pytest.fixture(scope="module")
def folder(world, tmp_path_factory):
    """The same on all ranks."""
    from pathlib import Path

    return Path(world.bcast(str(tmp_path_factory.mktemp("plans"))))


@pytest.fixture(scope="module")
def tuned(world, folder):
    """Plan files by ranks per node, each made when it is first asked for."""
    from dlscale.collectives.ring.tuner import tune

    made = {}

    def plan(ranks_per_node):
        if ranks_per_node not in made:
            path = folder / f"plan-{ranks_per_node}.json"
            reports = []
            written = tune(
                world,
                path,
                max_bytes=512 * KIB,
                seconds=0.5,
                ranks_per_node=ranks_per_node,
                progress=lambda *report: reports.append(report),
            )
            world.Barrier()
            made[ranks_per_node] = path, written, reports
        return made[ranks_per_node]

    return plan


def join(world, **settings):
    from dlscale.collectives.ring import Settings, join

    return join(world, Settings(**settings))


@pytest.mark.parametrize("ranks_per_node", [0, 1, 2])
def test_the_file_holds_what_was_found_for_these_ranks(tuned, world, ranks_per_node):
    from dlscale.collectives.ring.pieces import piece_here
    from dlscale.collectives.ring.plan import key_here, read_plan

    path, written, reports = tuned(ranks_per_node)
    key = key_here(world, piece_here(world, ranks_per_node=ranks_per_node))
    loaded = read_plan(path, key)
    everyone = world.allgather(written.model_dump_json())
    assert loaded.plan == written
    assert len(set(everyone)) == 1, "ranks decided differently"
    size = world.Get_size()
    per_node = min(ranks_per_node or size, size)
    assert (key.num_ranks, key.node_size) == (size, per_node)
    assert key.num_nodes == -(-size // per_node)
    assert key.num_lanes == (size % per_node or per_node)
    assert reports[-1][2] == "done"
    assert reports[-1][0] == reports[-1][1] >= len(reports) - 1
    questions = {timing.question for timing in written.timings}
    assert ("small messages inside a node" in questions) == (per_node > 1)
    assert ("schedules between nodes" in questions) == (key.num_nodes > 1)
    assert all(
        seconds > 0 and np.isfinite(seconds)
        for timing in written.timings
        for seconds in timing.seconds.values()
    )


@pytest.mark.parametrize("ranks_per_node", [0, 1, 2])
def test_with_a_plan_the_ring_computes_the_same(tuned, world, ranks_per_node):
    path, written, _ = tuned(ranks_per_node)
    rings = [join(world, ranks_per_node=ranks_per_node, plan=plan) for plan in ("", str(path))]
    buffers = []
    for count in (1, 1000, 10_000, 40_000, 300_000):
        generator = np.random.default_rng([1, world.Get_rank(), count])
        whole = generator.integers(-1000, 1000, count).astype(np.float32)  # exact in any order
        parts = generator.standard_normal(count).astype(np.float32)
        buffers.append([(whole.copy(), parts.copy()) for _ in rings])
        for ring, pair in zip(rings, buffers[-1], strict=True):
            for buffer in pair:
                ring.allreduce(buffer)
    settings = [ring.settings() for ring in rings]
    for ring in rings:
        ring.close()
    digests = [
        world.allgather(hashlib.sha256(parts.tobytes()).hexdigest()) for both in buffers for _, parts in both
    ]
    for (whole, parts), (planned_whole, planned_parts) in buffers:
        np.testing.assert_array_equal(whole, planned_whole)
        if written.key.num_nodes == 1:  # inside a node elements are added in order of rank, whatever the plan
            np.testing.assert_array_equal(parts, planned_parts)
    assert all(len(set(of_ranks)) == 1 for of_ranks in digests)
    assert "plan" not in settings[0]
    assert settings[1]["plan"] == path.name
    assert settings[1]["plan_digest"] == hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def test_a_plan_for_other_nodes_is_refused_on_all_ranks(tuned, world):
    if world.Get_size() == 1:
        pytest.skip("one rank makes one node, however they are cut")
    path, _, _ = tuned(1)
    with pytest.raises(UsageError, match="was made for num_nodes"):
        join(world, plan=str(path))


def test_a_plan_that_is_none_is_refused_on_all_ranks(world, folder):
    path = folder / "none.json"
    if world.Get_rank() == 0:
        path.write_text("{}")
    world.Barrier()
    with pytest.raises(UsageError, match="is no plan"):
        join(world, plan=str(path))
    with pytest.raises(UsageError, match="cannot be read"):
        join(world, plan=str(folder / "nowhere.json"))


def test_a_plan_that_cannot_be_written_is_told_on_all_ranks(world, folder):
    from dlscale.collectives.ring.tuner import tune

    with pytest.raises(UsageError, match="cannot write"):
        tune(world, folder / "no folder" / "plan.json", max_bytes=KIB, seconds=0.01)


def test_messages_of_no_length_are_refused(world, folder):
    from dlscale.collectives import ring

    with pytest.raises(UsageError, match="give 1024 or more"):
        ring.tune(world, folder / "plan.json", max_bytes=10)


def test_numbers_of_a_plan_reach_the_engine(world, folder):
    """A plan with odd numbers: sums stay right, and one-shot really ends where it says."""
    from dlscale.collectives.ring.pieces import piece_here
    from dlscale.collectives.ring.plan import CopyVariant, NodePlan, default_network, key_here, write_plan
    from dlscale.collectives.ring.plan import TuningPlan as Plan

    node = NodePlan(
        one_shot_bytes=192,
        variants=[CopyVariant(chunk_bytes=4096, prefetch=True, streaming=True)],
        block_bytes=65536,
    )
    paths = []
    for ranks_per_node in (0, 2):
        key = key_here(world, piece_here(world, ranks_per_node=ranks_per_node))
        plan = Plan(key=key, node=node, network=default_network(key.num_nodes))
        paths.append((ranks_per_node, folder / f"odd-{ranks_per_node}.json"))
        if world.Get_rank() == 0:
            write_plan(plan, paths[-1][1])
    world.Barrier()
    for ranks_per_node, path in paths:
        ring = join(world, ranks_per_node=ranks_per_node, plan=str(path))
        p = ring.size
        buffer = (np.arange(100_003) % 1000 * p + ring.rank).astype(np.float32)
        ring.allreduce(buffer)
        small = np.full(48, ring.rank, dtype=np.float32)
        ring.allreduce(small, "max")
        ring.close()
        np.testing.assert_array_equal(buffer, np.arange(100_003) % 1000 * p**2 + p * (p - 1) // 2)
        np.testing.assert_array_equal(small, p - 1)


def test_the_command_prints_the_plan_in_plain_words(world, folder):
    from click.testing import CliRunner

    from dlscale.benchmarks.cli.collectives_tune import tune

    path = folder / "command.json"
    asked = [str(path), "--max-bytes", "4KiB", "--budget", "0s", "--ranks-per-node", "1"]
    outcome = CliRunner().invoke(tune, asked)
    refused = CliRunner().invoke(tune, [str(path), "--max-bytes", "much"])
    assert outcome.exit_code == 0, outcome.output
    assert "is not a message size" in str(refused.exception)
    if world.Get_rank():
        assert outcome.output == ""
        return
    assert f"written: {path}" in outcome.output
    words = "one rank exchanges nothing" if world.Get_size() == 1 else "between nodes: "
    assert words in outcome.output
