"""Which rows each rank of a replica has, and that its batches are those of whole samples, cut."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.models import load_workload
from dlscale.models.parallel import deal_rows
from dlscale.models.samples import LocalBatches
from dlscale.models.workload import Input, Shard
from tests.taller import taller


@dataclass(frozen=True)
class Place:
    """As much of `Neighbours` as batches need."""

    index: int
    split: int
    takes_tensors: bool = False


def test_blocks_are_dealt_out_as_evenly_as_they_can_be():
    rows = [deal_rows(224, block_rows=16, index=index, split=4) for index in range(4)]
    assert [r.own(28) for r in rows] == [slice(0, 8), slice(8, 16), slice(16, 22), slice(22, 28)]
    assert [r.height(own) for r, own in zip(rows, (8, 8, 6, 6), strict=True)] == [28] * 4


@pytest.mark.parametrize(("height", "split"), [(64, 9), (60, 2)])
def test_more_ranks_than_blocks_and_parts_of_blocks_are_refused(height, split):
    with pytest.raises(UsageError, match=f"split {split} .*{height} rows"):
        deal_rows(height, block_rows=8, index=0, split=split)


def test_a_workload_says_into_how_many_parts_its_samples_go():
    presets = load_workload("hep_cnn").presets
    assert [presets[name].largest_split for name in ("paper", "small", "tiny")] == [14, 8, 8]
    assert {load_workload(name).preset("tiny").largest_split for name in ("inception_v3", "gpt")} == {1}


@pytest.mark.parametrize(
    ("name", "preset"), [("hep_cnn", "tiny"), ("cosmogan", "tiny"), ("resnet50", "tiny")]
)
@pytest.mark.parametrize("skip_bad", [False, True])
@pytest.mark.parametrize("synthetic", [False, True])
def test_ranks_of_a_replica_have_the_rows_of_its_batches(name, preset, skip_bad, synthetic):
    workload = taller(name, preset, 64 if name == "resnet50" else None)
    facts = workload.preset(preset)
    source = Input() if synthetic else workload.data().default_input(facts)

    def batch(shard):
        batches = LocalBatches(
            workload.data(),
            preset=facts,
            local_batch=2,
            source=replace(source, skip_bad=skip_bad),
            shard=shard,
            seed=3,
        )
        return (*next(batches.samples()), *batches.step_inputs())

    whole = batch(Shard(index=1, count=2))
    parts = [batch(Shard(index=1, count=2, neighbours=Place(index, 2))) for index in range(2)]
    for array, *own in zip(whole, *parts, strict=True):
        if array.ndim == 4:
            assert all(len(part[0]) < len(array[0]) and part.flags.c_contiguous for part in own)
            np.testing.assert_array_equal(np.concatenate(own, axis=1), array)
        else:
            assert all(np.array_equal(part, array) for part in own)


def test_samples_that_stay_whole_are_refused():
    facts = load_workload("gpt").preset("tiny")
    with pytest.raises(UsageError, match="split 2 was asked for"):
        facts.rows(Place(0, 2))
