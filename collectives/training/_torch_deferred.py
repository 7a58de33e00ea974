"""The torch trainer whose updates are deferred to the next step's forward pass (`deferral`).

Hooks before the forward passes of layers apply what is due for the layer's own parameters. Parameters whose own layers
are never called are found in the first steps; they are updated before the forward pass begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn

from dlscale.base.errors import UsageError
from dlscale.collectives.backend import Collective
from dlscale.collectives.training._torch import Setting, TorchTrainer
from dlscale.collectives.training._torch_exchange import Bucket, BucketExchange
from dlscale.collectives.training.deferral import NUM_MEASURED_STEPS, DeferredUpdates, agreed

# Their updates of a parameter depend on that one alone; a user's own optimizer may look at all gradients together.
KNOWN_OPTIMIZERS = ("torch.optim.", "dlscale.models.frameworks.")


def obstacle_to_deferral(replica: Any) -> str:
    """Why a replica's updates cannot be deferred; empty if they can."""
    if replica.compiled:
        return "a compiled network is one call, before which all layers must be up to date"
    if replica.schedule:
        return "the learning rate changes with every step, and deferred updates are made in the next one"
    for objective in replica.objectives:
        kind = type(objective.optimizer)
        if not f"{kind.__module__}.".startswith(KNOWN_OPTIMIZERS) or isinstance(
            objective.optimizer, torch.optim.LBFGS
        ):
            return f"{kind.__name__} may need all gradients at once, and deferred updates come layer by layer"
        if objective.optimizer._optimizer_step_pre_hooks:
            return "gradients are clipped by their norm together, and deferred updates come layer by layer"
    return ""


class DeferredTrainer(DeferredUpdates, TorchTrainer):
    """`TorchTrainer` whose updates are each made when the next step needs them, or on `synchronize` (`Trainer`).

    `collective` is one that the exchanges use too, free whenever nothing is under way.
    """

    exchanges: tuple[BucketExchange, ...]

    def __init__(
        self,
        replica: Any,
        exchanges: Sequence[BucketExchange],
        collective: Collective,
        *,
        close: Callable[[], None],
    ) -> None:
        super().__init__(replica, exchanges, close=close)
        self._collective = collective
        # A bucket's number is its place here.
        self._buckets = [bucket for exchange in self.exchanges for bucket in exchange.buckets()]
        self._objectives = [
            index for index, exchange in enumerate(self.exchanges) for _ in exchange.buckets()
        ]
        self._due: set[int] = set()  # buckets with means that were not yet applied
        self._at_once = set(range(len(self._buckets)))  # those to be applied before the forward pass
        self._num_steps = 0
        self._asked: dict[
            int, int
        ] = {}  # while measuring: place in the forward pass of each bucket asked for
        self._asking: set[int] = set()  # likewise: the parameters, by id, whose layers were called
        self._hooks = [module.register_forward_pre_hook(self._before(own)) for module, own in self._layers()]

    def step(self) -> None:
        """Train on one local batch, each layer as soon as its weights are those of the step before."""
        self._apply(self._at_once)
        self._asked.clear()
        batch = self._replica.next_batch()
        losses = []
        for index, (objective, exchange) in enumerate(
            zip(self._replica.objectives, self.exchanges, strict=True)
        ):
            exchange.begin()
            loss = exchange.loss(*batch)
            self._apply([number for number in self._due if self._objectives[number] == index])
            self._differentiate(loss, objective)
            exchange.flush()
            losses.append(loss.detach())
        self._due = set(range(len(self._buckets)))
        self._losses = losses
        self._num_steps += 1
        if self._num_steps == NUM_MEASURED_STEPS:
            self._plan()

    def settings(self) -> dict[str, Setting]:
        """The exchanges' own decisions, and how many buckets wait for nothing but their layers."""
        late = len(self._buckets) - len(self._at_once)
        return {**super().settings(), "deferred_buckets": f"{late} of {len(self._buckets)}"}

    def close(self) -> None:
        """Remove the hooks; what is due is lost."""
        for hook in self._hooks:
            hook.remove()
        super().close()

    def _make_updates(self) -> None:
        self._apply(self._due)

    def _apply(self, numbers: Iterable[int]) -> None:
        """Update the weights of these buckets, as far as they are due, when their means are there."""
        for number in sorted(self._due.intersection(numbers)):
            bucket = self._buckets[number]
            bucket.wait()
            bucket.give()
            self._updates[self._objectives[number]].apply(bucket.parameters)
            # The update goes through views that autograd does not know: whatever read the weights before is to fail.
            for parameter in bucket.parameters:
                torch.autograd.graph.increment_version(parameter)
            self._due.discard(number)

    def _differentiate(self, loss: Any, objective: Any) -> None:
        try:
            loss.backward(inputs=list(objective.parameters), retain_graph=objective.keeps_graph)
        except RuntimeError as error:
            if "modified by an inplace operation" not in str(error):
                raise
            raise UsageError(
                "a layer of the network reads weights of another one that is called later, when these are up to date; "
                "give deferred=0"
            ) from error

    def _layers(self) -> list[tuple[nn.Module, dict[int, int]]]:
        """Every module with parameters of its own that are trained, and the bucket of each of these by its id."""
        bucket_of = {
            id(parameter): number
            for number, bucket in enumerate(self._buckets)
            for parameter in bucket.parameters
        }
        modules = {
            id(module): module for exchange in self.exchanges for module in exchange.loss.modules()
        }.values()
        layers = [
            (
                module,
                {id(p): bucket_of[id(p)] for p in module.parameters(recurse=False) if id(p) in bucket_of},
            )
            for module in modules
        ]
        return [(module, own) for module, own in layers if own]

    def _before(self, own: dict[int, int]) -> Callable[..., None]:
        numbers = sorted(set(own.values()))

        def apply(*_: Any) -> None:
            if self._num_steps < NUM_MEASURED_STEPS:
                self._asking.update(own)
                for number in numbers:
                    self._asked.setdefault(number, len(self._asked) + 1)
            if self._due:
                self._apply(numbers)

        return apply

    def _plan(self) -> None:
        """Decide, from what was measured, on an order that is the same on all ranks; collective."""
        self._apply(self._due)
        self._at_once = {
            number
            for number, bucket in enumerate(self._buckets)
            if not self._asking.issuperset(map(id, bucket.parameters))
        }
        number_of: dict[int, int] = {id(bucket): number for number, bucket in enumerate(self._buckets)}

        def needed(bucket: Bucket) -> int:
            number = number_of[id(bucket)]
            return 0 if number in self._at_once else self._asked.get(number, 0)

        for exchange in self.exchanges:
            exchange.plan(agreed(self._collective, exchange.timings(needed)))
