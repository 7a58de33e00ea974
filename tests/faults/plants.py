"""Faults that are planted into the ranks of a launch: python plants.py <plant> <spool folder>, else `rank.worker`.

None touches what the gates before the first window look at.
"""

import json
import sys
from functools import partial
from pathlib import Path

import numpy as np

LATER = 6  # steps after which a training goes wrong
PUSHES = 20  # to a server, likewise


def _patch(owner, name, make):
    setattr(owner, name, make(getattr(owner, name)))


def _patch_everywhere(original, changed):
    """Also where it was imported by name."""
    for module in list(sys.modules.values()):
        for name, value in list(vars(module).items()):
            if value is original:
                setattr(module, name, changed)


def _cell():
    return json.loads((Path(sys.argv[1]) / "launch.json").read_text())["cases"][0]["cell"]


def _windows(change):
    """Windows are `change(window as it was measured, how it was asked for)`."""
    import dlscale.benchmarks.rank.launch  # noqa: F401 - all that has the loop by its name
    from dlscale.benchmarks.rank import measure

    original = measure.time_window
    _patch_everywhere(original, lambda *given, **named: change(original, given, named))


def nothing():
    """A launch as it should be."""


def one_step_less():
    def change(measured, given, named):
        num_steps = named["num_steps"]
        if num_steps < 2:
            return measured(*given, **named)
        fewer = measured(*given, **named | {"num_steps": num_steps - 1})
        return fewer.model_copy(update={"num_steps": num_steps})

    _windows(change)


def mean_halved():
    from dlscale.collectives.training._torch import Update

    num_updates = [0]

    def make(apply):
        def halved(self):
            num_updates[0] += 1
            for parameter in self._view_of if num_updates[0] > LATER else ():
                parameter.grad.mul_(0.5)
            apply(self)

        return halved

    _patch(Update, "apply", make)


def evaluated_on_training_samples():
    from dlscale.models.quality import metric
    from dlscale.models.samples import training_samples

    metric.held_out_samples = lambda count, share: training_samples(count, share=share)[: int(count * share)]


def evaluated_on_other_samples():
    """Named are the held-out ones."""
    from dlscale.models.quality.metric import HeldOut

    def make(read):
        def others(self, number):
            images, *labels = read(self, number)
            return (np.ascontiguousarray(images[::-1]), *labels)

        return others

    _patch(HeldOut, "_read", make)


def metric_raised():
    from dlscale.models.quality.metric import HeldOut

    _patch(HeldOut, "metrics", lambda old: lambda *given: {k: v + 0.2 for k, v in old(*given).items()})


def target_lowered():
    from dlscale.models.quality.metric import Metric

    _patch(Metric, "reached", lambda old: lambda self, value, wanted: old(self, value + 0.3, wanted))


def loader_reads_nothing():
    from dlscale.benchmarks.rank.controls import LoaderOnly

    LoaderOnly.step = lambda _: None


def broadcast_from_rank_1():
    """Which the gate before the first window looks at; all others leave alone what it does."""
    from dlscale.collectives.mpi import MpiCollective

    _patch(MpiCollective, "broadcast", lambda send: lambda self, buffer, root=0: send(self, buffer, 1 - root))


def wire_has_16_bits():
    """Though nobody asks for it."""
    from dlscale.collectives.mpi import MpiCollective

    num_exchanges = [0]

    def make(allreduce):
        def rounded(self, buffer, op="sum"):
            num_exchanges[0] += op == "average"
            if op == "average" and num_exchanges[0] > LATER:
                words = buffer.view(np.uint32)
                words[:] = (words + 0x8000) & 0xFFFF0000
            allreduce(self, buffer, op)

        return rounded

    _patch(MpiCollective, "allreduce", make)


def control_sends_nothing():
    from dlscale.benchmarks.rank.controls import ExchangeOnly

    def silent(self):
        for bucket in self._buckets:
            bucket[:] = self._gradients[self._first : self._first + bucket.size]
            self._meet()

    ExchangeOnly.step = silent


def control_sends_every_second_step():
    """In the others there is what an exchange of that size gave before."""
    from dlscale.collectives.mpi import MpiCollective

    means, num_exchanges = {}, {}

    def make(allreduce):
        def lazy(self, buffer, op="sum"):
            number = num_exchanges[buffer.size] = num_exchanges.get(buffer.size, 0) + (op == "average")
            if op == "average" and number > LATER and number % 2:
                buffer[:] = means[buffer.size]
                return
            allreduce(self, buffer, op)
            means[buffer.size] = buffer.copy()

        return lazy

    _patch(MpiCollective, "allreduce", make)


def barrier_is_local():
    """Of the control plane: nobody waits."""
    _patch_control(Barrier=lambda _: None)


def allgather_is_local():
    """Of the control plane: every rank hears itself alone."""
    _patch_control(allgather=lambda self, value: [value] * self.Get_size())


def _patch_control(**methods):
    from mpi4py import MPI

    from dlscale.collectives.control import by_mpi

    local = type("Local", (MPI.Intracomm,), methods)
    _patch(by_mpi.MpiPlane, "meet", lambda meet: lambda self, asked: local(meet(self, asked)))


def _servers_scale(part, *, is_last=False, every=1):
    """Servers, or the last one alone, take only that part of each push, or of `every` so many, from push PUSHES on.

    What they count, and what the worker sees of its push, is as it should be.
    """
    cell = _cell()
    if (cell["backend"], cell["framework"]) == ("grpc_ps", "tensorflow"):
        _tensorflow_servers_scale(part, is_last=is_last)
    else:
        _own_servers_scale(part, is_last=is_last, every=every)


def _is_spared(is_last):
    from mpi4py import MPI

    return is_last and MPI.COMM_WORLD.Get_rank() < MPI.COMM_WORLD.Get_size() - 1


def _own_servers_scale(part, *, is_last, every):
    from dlscale.collectives.servers.messages import Kind
    from dlscale.collectives.servers.server import Server

    num_pushes = {}

    def make(take):
        def scaled(self, worker, message):
            if message.kind is Kind.PUSH and not _is_spared(is_last):
                number = num_pushes[message.session] = num_pushes.get(message.session, 0) + 1
                if number > PUSHES and number % every == 0:
                    message.values[:] *= np.float32(part)
            take(self, worker, message)

        return scaled

    _patch(Server, "_take", make)


def _tensorflow_servers_scale(part, *, is_last):
    import tensorflow as tf

    from dlscale.collectives.servers._tensorflow import Together

    def make(apply):
        def scaled(self, grads_and_vars, global_step=None, name=None):
            step = tf.raw_ops.ReadVariableOp(resource=global_step.handle, dtype=tf.int64)
            factor = tf.where(step >= PUSHES // 2, np.float32(part), np.float32(1))
            pairs = [
                (gradient if is_last and "task:0" in variable.device else gradient * factor, variable)
                for gradient, variable in grads_and_vars
            ]
            return apply(self, pairs, global_step, name)

        return scaled

    _patch(Together, "apply_gradients", make)


servers_zero_a_shard = partial(_servers_scale, 0.0, is_last=True)
servers_zero_every_second_push = partial(_servers_scale, 0.0, is_last=True, every=2)
servers_zero_all = partial(_servers_scale, 0.0)
servers_halve = partial(_servers_scale, 0.5)
servers_shorten = partial(_servers_scale, 0.99)


def _part_of_rank_1(change):
    """The update of its part of the weights is `change(update)` from update LATER on."""
    if _is_spared(is_last=True):
        return
    cell = _cell()
    if cell["shard"] == "parameters":
        from dlscale.collectives.sharding._torch_parameters import PieceUpdate as Kind
    else:
        from dlscale.collectives.sharding._torch_optimizer import PartUpdate as Kind
    num_updates = [0]

    def make(apply):
        def changed(self):
            num_updates[0] += 1
            (change(apply) if num_updates[0] > LATER else apply)(self)

        return changed

    _patch(Kind, "apply", make)


part_not_updated = partial(_part_of_rank_1, lambda _: lambda _: None)
part_updated_twice = partial(_part_of_rank_1, lambda apply: lambda part: (apply(part), apply(part)))


def optimizer_not_sharded():
    """Every rank updates all weights, with means that all ranks have."""
    from dlscale.collectives.sharding._torch_optimizer import PartedBucket
    from dlscale.collectives.sharding.backends import TimedCollective

    def make(init):
        def whole(self, *given, **named):
            init(self, *given, **named)
            self.own = slice(0, self.array.size)

        return whole

    def gathered(gather):
        def alone(self, piece, output):
            if piece.size == output.size:
                output[:] = piece
            else:
                gather(self, piece, output)

        return alone

    _patch(PartedBucket, "__init__", make)
    _patch(TimedCollective, "allgather", gathered)
    PartedBucket._exchange = lambda self, collective: collective.allreduce(self.array, "average")


def weights_stay_gathered():
    """From a unit's forward pass to its backward pass."""
    from functools import partial

    from dlscale.collectives.sharding import _torch_units

    _torch_units.fully_shard = partial(_torch_units.fully_shard, reshard_after_forward=False)


def part_gathered_stale():
    """Rank 1 has the other's part of the weights as it was a step before."""
    if _is_spared(is_last=True):
        return
    if _cell()["shard"] == "parameters":
        _unit_gathered_stale()
        return
    from dlscale.collectives.sharding.backends import TimedCollective

    before, num_gathers = {}, [0]

    def make(gather):
        def late(self, piece, output):
            own = piece.copy()
            gather(self, piece, output)
            fresh = output.copy()
            num_gathers[0] += 1
            if num_gathers[0] > LATER:
                output[:] = before[output.size]
                output[-own.size :] = own
            before[output.size] = fresh

        return late

    _patch(TimedCollective, "allgather", make)


def _unit_gathered_stale():
    from dlscale.collectives.sharding._torch_parameters import Gather

    before, num_gathers = {}, [0]

    def make(gather):
        def late(self, output_tensor, input_tensor, group, async_op=False):
            place = len(self._log.gathered)  # in the step
            own = input_tensor.clone()
            gather(self, output_tensor, input_tensor, group, False)
            fresh = output_tensor.clone()
            num_gathers[0] += 1
            if num_gathers[0] > 20 * LATER:
                output_tensor.copy_(before[place])
                output_tensor[-own.numel() :] = own
            before[place] = fresh

        return late

    _patch(Gather, "__call__", make)


def no_audits():
    from dlscale.benchmarks.rank.audit import ReplayAudit

    ReplayAudit.gates = lambda _: []


if __name__ == "__main__":
    globals()[sys.argv.pop(1)]()
    from dlscale.benchmarks.rank.worker import main

    main()
