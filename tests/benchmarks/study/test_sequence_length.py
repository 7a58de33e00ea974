"""A study's length of sequences is that of its cells, and of all that is known, estimated and built of them."""

import pytest

from dlscale.benchmarks.cli.profiles import _key
from dlscale.benchmarks.study.plan import step_seconds
from dlscale.models import load_workload
from dlscale.models.workload import Shard
from tests.benchmarks.spools import launch_spec
from tests.benchmarks.study.test_axes import plan, trained

GPT = {"workloads": ["gpt"], "backends": ["ring"]}
FACTS = load_workload("gpt")


@pytest.fixture(scope="module")
def cells():
    """32 and 64 tokens."""
    planned = plan(**GPT, sequence_length=[32, 64])
    return sorted(trained(planned), key=lambda cell: cell.sequence_length)


def test_each_length_is_a_curve_with_facts_of_its_own(cells):
    assert [cell.sequence_length for cell in cells] == [32, 64]
    assert [cell.preset_facts for cell in cells] == [FACTS.preset("tiny", 32), FACTS.preset("tiny", 64)]
    short, long = map(step_seconds, cells)
    assert long / short == pytest.approx(
        FACTS.preset("tiny", 64).forward_flops_per_sample / FACTS.preset("tiny", 32).forward_flops_per_sample
    )


def test_the_presets_own_length_is_not_written():
    (cell,) = trained(plan(**GPT))
    assert "sequence_length" not in cell.model_dump()
    assert cell.preset_facts.tokens_per_sample == 128


def test_profiles_are_of_one_length(cells):
    assert [_key(cell).rpartition(", ")[2] for cell in cells] == ["32 tokens", "64 tokens"]


@pytest.mark.requires("torch")
def test_ranks_train_on_that_length(cells):
    spec = launch_spec()
    (tokens, labels) = spec.factory(cells[0])(shard=Shard(), seed=1).next_batch()
    assert tuple(tokens.shape) == tuple(labels.shape) == (cells[0].local_batch, 32)
