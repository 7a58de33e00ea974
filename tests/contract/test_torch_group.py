"""torch.distributed over the ring: backend "dlscale", on however many ranks this was started."""

import sys
from datetime import timedelta

import numpy as np
import pytest
import torch
import torch.distributed as dist

from dlscale.base.errors import UsageError
from dlscale.collectives import ring

OLD_TORCH = torch.__version__.startswith("2.4.")
# By the names that they had before torch 2.13.
all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

pytestmark = pytest.mark.on_ranks(1, 2, 3)


@pytest.fixture(scope="module")
def registered(world):
    if "DLSCALE" not in dist.Backend._plugins:
        ring.register_torch_backend(world)


@pytest.fixture(params=[False, True], ids=["not overlapped", "thread"])
def group(request, world, registered):
    """The group of all, exchanging without overlap or by a thread."""
    from dlscale.collectives.ring import _torch_process_group

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "excepthook", sys.excepthook)  # torch puts one of its own before it, every time
        patch.setattr(_torch_process_group, "want_threads", lambda *_, **__: request.param)
        dist.init_process_group("dlscale", init_method="mpi://")
        group = dist.distributed_c10d._get_default_group()
        assert group.settings()["overlap"] == request.param
        yield group
        world.Barrier()
        dist.destroy_process_group()


def ramp(count, rank, size, dtype=torch.float32):
    return (torch.arange(count) * size + rank).to(dtype)


def test_the_backend_is_registered_once(world, registered):
    with pytest.raises(UsageError, match="knows backend 'dlscale' already"):
        ring.register_torch_backend(world)


def test_ranks_and_sizes_are_those_of_mpi(group, world):
    assert dist.get_backend() == "dlscale"
    assert (dist.get_rank(), dist.get_world_size()) == (world.Get_rank(), world.Get_size())


def test_a_rank_that_mpi_does_not_know_is_refused(world, registered):
    with pytest.raises(UsageError, match="got rank 0 of 77, but MPI says"):
        dist.init_process_group("dlscale", store=dist.HashStore(), rank=0, world_size=77)


OPERATIONS = {
    "SUM": lambda r, p: r * p + p * (p - 1) // 2,
    "MIN": lambda r, _: r,
    "MAX": lambda r, p: r + p - 1,
    "AVG": lambda r, p: r + (p - 1) / 2,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64])
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("count", [0, 1, 1000])
def test_all_reduce(group, world, name, dtype, count):
    rank, p = world.Get_rank(), world.Get_size()
    if name == "AVG" and not dtype.is_floating_point:
        with pytest.raises(TypeError, match="no exact result"):
            dist.all_reduce(ramp(count, rank, p, dtype), dist.ReduceOp.AVG)
        return
    tensor = ramp(count, rank, p, dtype).reshape(-1, 1)
    dist.all_reduce(tensor, getattr(dist.ReduceOp, name))
    expected = OPERATIONS[name](torch.arange(count) * p, p).to(dtype)
    torch.testing.assert_close(tensor.reshape(-1), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("op", [dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX])
def test_all_reduce_of_half_precision(group, world, dtype, op):
    """Small whole numbers, which eight bits hold; half of one where they are averaged."""
    rank, p = world.Get_rank(), world.Get_size()
    tensor = (torch.arange(100) % 7 + rank).to(dtype)
    dist.all_reduce(tensor, op)
    everyone = torch.stack([(torch.arange(100) % 7 + r).float() for r in range(p)])
    reduce = {dist.ReduceOp.SUM: everyone.sum(0), dist.ReduceOp.AVG: everyone.mean(0)}
    expected = reduce.get(op, everyone.amax(0)).to(dtype)
    torch.testing.assert_close(tensor, expected, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
@pytest.mark.parametrize("count", [1, 3, 1001])
def test_what_moves_keeps_every_bit_of_any_dtype(group, world, dtype, count):
    rank, p = world.Get_rank(), world.Get_size()

    def of(r):
        bits = np.random.default_rng([r, count]).integers(0, 2, count * 8, dtype=np.uint8)
        return (
            torch.from_numpy(bits)
            .view(torch.bool if dtype == torch.bool else torch.uint8)
            .view(dtype)[:count]
        )

    for root in range(p):
        tensor = of(rank)
        dist.broadcast(tensor, src=root)
        assert torch.equal(tensor.view(torch.uint8), of(root).view(torch.uint8))
    gathered = [torch.zeros(count, dtype=dtype) for _ in range(p)]
    dist.all_gather(gathered, of(rank))
    whole = torch.zeros(p * count, dtype=dtype)
    all_gather_single(whole, of(rank))
    for r in range(p):
        assert torch.equal(gathered[r].view(torch.uint8), of(r).view(torch.uint8))
        assert torch.equal(whole[r * count : (r + 1) * count].view(torch.uint8), of(r).view(torch.uint8))


def test_broadcast_of_a_part_at_an_odd_address(group, world):
    whole = torch.full((9,), world.Get_rank(), dtype=torch.uint8)
    dist.broadcast(whole[1:9], src=world.Get_size() - 1)
    assert whole.tolist() == [world.Get_rank()] + [world.Get_size() - 1] * 8


@pytest.mark.parametrize("op", ["SUM", "AVG", "MAX"])
def test_reduce_scatter(group, world, op):
    rank, p = world.Get_rank(), world.Get_size()
    mine = ramp(5 * p, rank, p)
    expected = OPERATIONS[op](torch.arange(5 * p) * p, p).float()[5 * rank : 5 * rank + 5]
    one, other = torch.zeros(5), torch.zeros(5)
    dist.reduce_scatter(one, list(mine.split(5)), getattr(dist.ReduceOp, op))
    reduce_scatter_single(other, mine, getattr(dist.ReduceOp, op))
    torch.testing.assert_close(one, expected)
    torch.testing.assert_close(other, expected)
    torch.testing.assert_close(mine, ramp(5 * p, rank, p))  # the input is left alone


def test_objects(group, world):
    gathered = [None] * world.Get_size()
    dist.all_gather_object(gathered, {"rank": world.Get_rank(), "text": "x" * world.Get_rank()})
    spread = [("of", world.Get_rank())]
    dist.broadcast_object_list(spread, src=world.Get_size() - 1)
    assert gathered == [{"rank": r, "text": "x" * r} for r in range(world.Get_size())]
    assert spread == [("of", world.Get_size() - 1)]


def test_a_work_is_waited_for_and_has_a_future(group, world):
    p = world.Get_size()
    tensors = [torch.full((1000,), float(world.Get_rank() + i)) for i in range(5)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    futures = [work.get_future() for work in works]
    assert all(work.wait() for work in works)
    for i, (work, future) in enumerate(zip(works, futures, strict=True)):
        assert work.is_completed()
        assert work.is_success()
        assert work.exception() is None
        expected = torch.full((1000,), float(i * p + p * (p - 1) // 2))
        torch.testing.assert_close(future.wait()[0], expected)
        torch.testing.assert_close(work.result()[0], expected)


def of(rank, count, dtype=torch.float32, number=0):
    return torch.from_numpy(np.random.default_rng([rank, count, number]).standard_normal(count)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.bool])
@pytest.mark.parametrize("count", [1, 100_003])
def test_messages_go_round_in_a_batch(group, world, dtype, count):
    rank, p = world.Get_rank(), world.Get_size()
    received = torch.zeros(count, dtype=dtype)
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, of(rank, count, dtype), (rank + 1) % p),
            dist.P2POp(dist.irecv, received, (rank - 1) % p),
        ]
    )
    for work in works:
        work.wait()
    assert torch.equal(received, of((rank - 1) % p, count, dtype))
    assert all(work.is_completed() and work.is_success() and work.exception() is None for work in works)


@pytest.mark.parametrize("count", [10, 100_003])
def test_messages_that_are_waited_for(group, world, count):
    rank, p = world.Get_rank(), world.Get_size()
    if p == 1:
        pytest.skip("torch lets no rank send to itself and wait")
    if rank == 0:
        for other in range(1, p):
            dist.send(of(0, count, number=other), other, tag=3)
        sources = []
        for _ in range(1, p):
            received = torch.zeros(count)
            sources.append(dist.recv(received, tag=5))
            assert torch.equal(received, of(sources[-1], count))
        assert sorted(sources) == list(range(1, p))
    else:
        received = torch.zeros(count)
        assert dist.recv(received, 0, tag=3) == 0
        assert torch.equal(received, of(0, count, number=rank))
        dist.send(of(rank, count), 0, tag=5)


def test_messages_of_a_group_of_some(group, world):
    rank, p = world.Get_rank(), world.Get_size()
    if p < 2:
        pytest.skip("needs two ranks")
    ends = dist.new_group([0, p - 1])
    if rank == 0:
        dist.send(of(0, 50_000), p - 1, group=ends)
    if rank == p - 1:
        received = torch.zeros(50_000)
        assert dist.recv(received, 0, group=ends) == 0
        assert torch.equal(received, of(0, 50_000))


def test_a_message_has_a_future_and_a_wait_a_limit(group, world):
    rank, received = world.Get_rank(), torch.zeros(50_000)
    work = dist.irecv(received, rank)
    with pytest.raises(TimeoutError, match=r"not done after 0\.01 s"):
        work.wait(timedelta(seconds=0.01))
    assert not work.is_completed()
    future = work.get_future()
    dist.isend(of(rank, 50_000), rank)  # nobody waits for it
    assert torch.equal(future.wait()[0], of(rank, 50_000))
    assert torch.equal(work.result()[0], of(rank, 50_000))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.bool])
@pytest.mark.parametrize("count", [1, 10_003])
def test_all_to_all_gather_and_scatter(group, world, dtype, count):
    rank, p = world.Get_rank(), world.Get_size()
    mine = [of(rank, count, dtype, number=to) for to in range(p)]
    theirs = [of(source, count, dtype, number=rank) for source in range(p)]
    outputs, whole = [torch.zeros_like(t) for t in mine], torch.zeros(p * count, dtype=dtype)
    dist.all_to_all(outputs, mine)
    dist.all_to_all_single(whole, torch.cat(mine))
    assert all(map(torch.equal, outputs, theirs))
    assert torch.equal(whole, torch.cat(theirs))
    for root in range(p):
        gathered = [torch.zeros_like(t) for t in mine] if rank == root else None
        piece = torch.zeros(count, dtype=dtype)
        dist.gather(mine[root], gathered, dst=root)
        dist.scatter(piece, gathered, src=root)
        assert torch.equal(piece, mine[root])
        assert gathered is None or all(
            map(torch.equal, gathered, [of(r, count, dtype, root) for r in range(p)])
        )


def test_all_to_all_of_uneven_rows_begun_and_waited_for(group, world):
    rank, p = world.Get_rank(), world.Get_size()
    rows = [[(source + 2 * to) % 3 for to in range(p)] for source in range(p)]
    mine = torch.cat([of(rank, 2 * rows[rank][to], number=to).reshape(-1, 2) for to in range(p)])
    theirs = torch.cat([of(s, 2 * rows[s][rank], number=rank).reshape(-1, 2) for s in range(p)])
    output = torch.zeros_like(theirs)
    sizes = [row[rank] for row in rows], rows[rank]
    work = dist.all_to_all_single(output, mine, *sizes, async_op=True)
    work.wait()
    assert torch.equal(output, theirs)
    assert torch.equal(work.get_future().wait()[0], theirs[: rows[0][rank]])


@pytest.mark.parametrize("op", ["SUM", "MAX", "AVG"])
def test_reduce(group, world, op):
    rank, p = world.Get_rank(), world.Get_size()
    for root in range(p):
        tensor = ramp(1000, rank, p)
        dist.reduce(tensor, root, getattr(dist.ReduceOp, op))
        if rank == root:
            torch.testing.assert_close(tensor, OPERATIONS[op](torch.arange(1000) * p, p).float())


def test_several_tensors_are_gathered_at_once(group, world):
    rank, p = world.Get_rank(), world.Get_size()
    outputs = [[torch.zeros(n) for n in (1, 1000)] for _ in range(p)]
    with pytest.warns(FutureWarning):
        dist.all_gather_coalesced(outputs, [of(rank, n) for n in (1, 1000)])
    assert all(torch.equal(outputs[r][i], of(r, n)) for r in range(p) for i, n in enumerate((1, 1000)))


def test_objects_are_gathered_and_scattered(group, world):
    rank, p = world.Get_rank(), world.Get_size()
    everyones = [None] * p if rank == 0 else None
    dist.gather_object({"rank": rank}, everyones, dst=0)
    mine = [None]
    dist.scatter_object_list(mine, [("for", r) for r in range(p)] if rank == 0 else None, src=0)
    assert mine == [("for", rank)]
    assert everyones is None or everyones == [{"rank": r} for r in range(p)]


def test_a_barrier_and_several_tensors_at_once(group, world):
    dist.barrier()
    tensors = [torch.full((n,), float(world.Get_rank())) for n in (1, 2)]
    group.allreduce_coalesced(tensors).wait()
    p = world.Get_size()
    assert [tensor.tolist() for tensor in tensors] == [[p * (p - 1) / 2] * n for n in (1, 2)]


def test_groups_of_some_ranks_are_formed_by_their_members(group, world):
    """Two that overlap in one rank, formed in the same order; the rank that is in none goes on."""
    rank, p = world.Get_rank(), world.Get_size()
    if p < 2:
        pytest.skip("needs two ranks")
    members = [[0, p - 1], list(range(p - 1, 0, -1))[:2]]
    groups = [dist.new_group(ranks) for ranks in members]
    sums = []
    for ranks, some in zip(members, groups, strict=True):
        if rank in ranks:
            tensor = torch.tensor([2.0**rank])
            dist.all_reduce(tensor, group=some)
            sums.append((tensor.item(), sum(2.0**r for r in ranks)))
    tensor = torch.tensor([2.0**rank])
    dist.all_reduce(tensor)
    for found, expected in sums:
        assert found == expected
    assert tensor.item() == 2.0**p - 1


def test_a_group_of_another_backend_needs_a_store_and_says_so(group):
    with pytest.raises(UsageError, match=r'"mpi://" has no store.* give init_process_group a store'):
        dist.new_group(backend="gloo")


def test_a_group_of_another_backend_can_be_formed_beside_it(world, registered, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    rank, p = world.Get_rank(), world.Get_size()
    folder = world.bcast(str(tmp_path_factory.mktemp("store")))
    dist.init_process_group("dlscale", store=dist.FileStore(f"{folder}/store", p), rank=rank, world_size=p)
    gloo = dist.new_group(backend="gloo")
    tensors = [torch.tensor([2.0**rank]) for _ in range(2)]
    dist.all_reduce(tensors[0])
    dist.all_reduce(tensors[1], dist.ReduceOp.PRODUCT, group=gloo)
    world.Barrier()
    dist.destroy_process_group()
    assert tensors == [torch.tensor([2.0**p - 1]), torch.tensor([2.0 ** (p * (p - 1) / 2)])]


REFUSED = {
    "strided": (lambda: dist.all_reduce(torch.ones(3, 4).t()), ValueError, "strides .* not contiguous"),
    "sparse": (lambda: dist.all_reduce(torch.ones(3).to_sparse()), TypeError, "give tensor.to_dense"),
    "device": (lambda: dist.all_reduce(torch.ones(3, device="meta")), ValueError, "on meta"),
    "int8": (lambda: dist.all_reduce(torch.ones(3, dtype=torch.int8)), TypeError, "int8; give float32"),
    "product": (
        lambda: dist.all_reduce(torch.ones(3), dist.ReduceOp.PRODUCT),
        NotImplementedError,
        "by PRODUCT",
    ),
    "sizes": (lambda: all_gather_single(torch.ones(1), torch.ones(3)), ValueError, "one piece per rank"),
    "split sizes": (
        lambda: dist.all_to_all_single(torch.ones(6), torch.ones(6), None, [1]),
        ValueError,
        "give one per rank",
    ),
    "message": (lambda: dist.isend(torch.ones(3, 4).t(), 0), ValueError, "not contiguous"),
}


@pytest.mark.parametrize(("use", "error", "text"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_done_is_refused_and_the_group_goes_on(group, world, use, error, text):
    with pytest.raises(error, match=text):
        use()
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [world.Get_size()] * 3


@pytest.mark.skipif(OLD_TORCH, reason="this torch does not tell a group of its end")
def test_a_destroyed_group_refuses(world, registered):
    dist.init_process_group("dlscale", init_method="mpi://")
    group = dist.distributed_c10d._get_default_group()
    dist.destroy_process_group()
    with pytest.raises(RuntimeError, match="closed"):
        group.allreduce([torch.ones(3)]).wait()
