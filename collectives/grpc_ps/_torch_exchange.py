"""A replica's gradients on their way to the servers, while backpropagation goes on, and the weights on their way back.

A chunk is sent as soon as it has all its gradients: from the last layer to the first, hence from a shard's end to
its beginning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from threading import Condition
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dlscale.base.errors import UsageError
from dlscale.collectives.backend import BUCKET_SIZES
from dlscale.collectives.grpc_ps._grpc import COUNT, KEPT, Channel, Stream
from dlscale.collectives.grpc_ps._torch_optimizers import Section
from dlscale.collectives.grpc_ps.messages import (
    BYTES_PER_ELEMENT,
    GRADIENT,
    WEIGHTS,
    Chunk,
    Hello,
    Message,
    Piece,
    RefusedError,
    Session,
    chunks,
    pack,
    pack_look,
    pieces,
    question,
    shards,
    unpack,
    unpack_counts,
    unpack_slot,
)
from dlscale.collectives.training._torch import NoExchange, Setting, clear_gradients, flat_in_memory
from dlscale.collectives.training._torch_buckets import staging_of

Floats = NDArray[np.float32]
Places = Sequence[Floats]
"""Where in the parameters' memory a chunk's elements go, in order."""


class Arrivals:
    """Puts chunks of weights into the parameters, once nothing is computed from the old ones any more.

    Until then messages are kept as they came.
    """

    def __init__(self, layouts: list[list[Chunk]], places: Sequence[Sequence[Places]]) -> None:
        self._layouts, self._places = layouts, places
        self._changed = Condition()
        self._early: list[tuple[int, Message]] = []
        self._may_place = False
        self._step = -1
        self._missing = 0
        self._failure: Exception | None = None

    def begin(self, step: int) -> None:
        """Every chunk is to come once, for this step; the parameters are still needed."""
        with self._changed:
            self._step = step
            self._missing = sum(len(layout) for layout in self._layouts)
            self._may_place = False

    def take(self, server: int, raw: bytes) -> None:
        """A message from a server, by the thread that receives it. Raises RefusedError for one that is not due."""
        message = unpack(raw, self._layouts[server])
        if message.kind != WEIGHTS or message.step != self._step:
            raise RefusedError(
                f"grpc_ps: server {server} sent a message of kind {message.kind} at step {message.step}; "
                f"weights of step {self._step} are due"
            )
        with self._changed:
            if not self._may_place:
                self._early.append((server, message))
                return
        self._place(server, message)

    def fail(self, error: Exception) -> None:
        """Nothing more will come from some server."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    def check(self) -> None:
        """Raises what went wrong, if anything did."""
        if self._failure:
            raise self._failure

    def finish(self) -> None:
        """Return when all weights are in the parameters. Raises what went wrong."""
        with self._changed:
            self._may_place = True
            early, self._early = self._early, []
        for server, message in early:
            self._place(server, message)
        with self._changed:
            self._changed.wait_for(lambda: not self._missing or self._failure)
            self.check()

    def _place(self, server: int, message: Message) -> None:
        start = 0
        for place in self._places[server][message.chunk]:
            place[:] = message.values[start : start + place.size]
            start += place.size
        with self._changed:
            self._missing -= 1
            if not self._missing:
                self._changed.notify_all()


class Outgoing:
    """One chunk, the pieces of parameters that it consists of, and how many of them have no gradient yet."""

    def __init__(self, server: int, index: int, parts: Sequence[Piece]) -> None:
        self.server, self.index, self.parts = server, index, tuple(parts)
        self.num_missing = 0


class Traffic:
    """A replica's parameters, and a stream to each server that carries their gradients and weights.

    All methods are for the thread that trains. Raises UsageError for parameters that cannot be served.
    """

    def __init__(
        self, sections: Sequence[Section], channels: Sequence[Channel], make_session: Callable[..., Session]
    ) -> None:
        self.parameters: list[nn.Parameter] = [p for section in sections for p in section.parameters]
        _check(self.parameters, num_servers=len(channels))
        self._staging = staging_of(self.parameters)
        self._flat = [flat_in_memory(parameter.detach()) for parameter in self.parameters]
        self._mirrors = [self._staging.on_host(flat) for flat in self._flat]
        self._staging.arrival()()  # from now on servers' weights are written there
        self._memory: list[Floats] = [mirror.numpy() for mirror in self._mirrors]
        self._gradients: list[Floats | None] = [None] * len(self.parameters)
        self._due: set[int] = set()  # parameters without a gradient in this step
        self._step = 0
        sizes_of_sections = [sum(p.numel() for p in section.parameters) for section in sections]
        held = shards(sizes_of_sections, num_servers=len(channels))
        self.sessions = [
            make_session(regions=[(r.count, r.optimizer) for r in shard.regions]) for shard in held
        ]
        self._layouts = [
            chunks(session.layout(), chunk_elements=session.chunk_elements) for session in self.sessions
        ]
        sizes = [memory.size for memory in self._memory]
        self._outgoing = [
            [
                Outgoing(
                    server,
                    index,
                    list(pieces(sizes, shard.start + c.offset, shard.start + c.offset + c.count)),
                )
                for index, c in enumerate(layout)
            ]
            for server, (shard, layout) in enumerate(zip(held, self._layouts, strict=True))
        ]
        self._with_parameter: list[list[Outgoing]] = [[] for _ in self.parameters]
        for outgoing in self._all():
            for part in outgoing.parts:
                self._with_parameter[part.parameter].append(outgoing)
        places = [[self._parts(outgoing, self._memory) for outgoing in own] for own in self._outgoing]
        self._arrivals = Arrivals(self._layouts, places)
        self._channels = tuple(channels)
        self._streams: list[Stream] = []

    def open(self, worker: int) -> None:
        """Join the sessions; on return all parameters hold worker 0's weights. Raises what went wrong."""
        self._arrivals.begin(0)
        for server, (channel, session) in enumerate(zip(self._channels, self.sessions, strict=True)):
            stream = Stream(channel, take=partial(self._arrivals.take, server), fail=self._arrivals.fail)
            self._streams.append(stream)
            stream.send(Hello(worker=worker, session=session).model_dump_json().encode)
        if worker == 0:
            for outgoing in self._all():
                self._send(outgoing, WEIGHTS)
        self.finish()

    def begin(self) -> None:
        """A step begins: no gradient is there."""
        self._arrivals.check()
        self._step += 1
        self._arrivals.begin(self._step)
        self._gradients = [None] * len(self.parameters)
        self._due = set(range(len(self.parameters)))
        for outgoing in self._all():
            outgoing.num_missing = len(outgoing.parts)

    def give(self, index: int) -> None:
        """The gradient of a parameter is there, or there will be none. Raises UsageError for one that is not due."""
        if index not in self._due:
            raise UsageError(
                "backend grpc_ps sends a gradient as soon as it is there, but it came twice in a step, or outside of "
                "one; call zero_grad, backward once, and step, in this order"
            )
        self._due.remove(index)
        parameter = self.parameters[index]
        self._gradients[index] = self._staging.on_host(_flat_gradient(parameter)).numpy()
        for outgoing in reversed(self._with_parameter[index]):
            outgoing.num_missing -= 1
            if not outgoing.num_missing:
                self._send(outgoing, GRADIENT)

    def is_given(self, index: int) -> bool:
        """Whether `give` was called in this step."""
        return index not in self._due

    def finish(self) -> None:
        """Return when the parameters hold the new weights. Raises what went wrong."""
        self._arrivals.finish()
        for mirror, flat in zip(self._mirrors, self._flat, strict=True):
            self._staging.deliver(mirror, flat)

    def num_applied(self) -> int:
        return self._counts(0)[0]

    def staleness(self) -> dict[int, int]:
        """{updates: gradients} that had missed so many, over all servers; messages of each chunk count."""
        total: Counter[int] = Counter()
        for server in range(len(self._channels)):
            total.update(self._counts(server)[1])
        return dict(sorted(total.items()))

    def fetch(self) -> None:
        """Between two steps: return when the parameters hold the servers' weights of now. Raises what went wrong."""
        self._arrivals.check()
        self._arrivals.begin(self._step)
        for outgoing in self._all():
            self._streams[outgoing.server].send(partial(pack_look, outgoing.index, self._step))
        self.finish()

    def kept(self) -> list[dict[str, Floats]]:
        """What servers' optimizers keep of each parameter, by name: flat in the order of its memory, or a number."""
        kept: list[dict[str, Floats]] = [{} for _ in self.parameters]
        for channel, session, all_outgoing in zip(self._channels, self.sessions, self._outgoing, strict=True):
            for raw in channel.ask(KEPT, question(session)):
                index, name, values = unpack_slot(raw)
                start = 0
                for part in all_outgoing[index].parts:
                    own = kept[part.parameter]
                    if not values.ndim:
                        own[name] = values
                        continue
                    if name not in own:
                        own[name] = np.zeros(self._memory[part.parameter].size, np.float32)
                    stop = start + part.stop - part.start
                    own[name][part.start : part.stop] = values[start:stop]
                    start = stop
        return kept

    def _counts(self, server: int) -> tuple[int, dict[int, int]]:
        (counts,) = self._channels[server].ask(COUNT, question(self.sessions[server]))
        return unpack_counts(counts)

    def settings(self) -> dict[str, Setting]:
        """How the weights are cut, and who owns them."""
        session = self.sessions[0]
        return {
            "overlap": True,
            "num_servers": len(self.sessions),
            "asynchronous": session.asynchronous,
            "chunk_bytes": session.chunk_elements * BYTES_PER_ELEMENT,
            BUCKET_SIZES: ",".join(
                str(BYTES_PER_ELEMENT * sum(chunk.count for chunk in layout)) for layout in self._layouts
            ),
            **self._staging.settings(),
        }

    def close(self) -> None:
        for stream in self._streams:
            stream.close()

    def _all(self) -> list[Outgoing]:
        return [outgoing for own in self._outgoing for outgoing in reversed(own)]

    def _send(self, outgoing: Outgoing, kind: int) -> None:
        step, chunk = self._step, self._layouts[outgoing.server][outgoing.index]
        arrival = self._staging.arrival()

        def build() -> bytes:
            arrival()
            values = self._memory if kind == WEIGHTS else self._gradients
            return pack(kind, outgoing.index, step, chunk, self._parts(outgoing, values))

        self._streams[outgoing.server].send(build)

    @staticmethod
    def _parts(outgoing: Outgoing, values: Sequence[Any]) -> list[Floats]:
        return [values[part.parameter][part.start : part.stop] for part in outgoing.parts]


class PushExchange(NoExchange):
    """Sends an objective's gradients to the servers, which apply them."""

    def __init__(self, objective: Any, traffic: Traffic, *, is_first: bool) -> None:
        super().__init__(objective)
        self._traffic = traffic
        self._is_first = is_first  # of the objectives
        place = {id(parameter): index for index, parameter in enumerate(traffic.parameters)}
        self._indices = [place[id(parameter)] for parameter in self._parameters]
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(lambda _, index=index: traffic.give(index))
            for index, parameter in zip(self._indices, self._parameters, strict=True)
        ]

    def begin(self) -> None:
        if self._is_first:
            self._traffic.begin()
        clear_gradients(self._parameters)

    def flush(self) -> None:
        """Send what is left: parameters that the step did not use count as 0."""
        for index in reversed(self._indices):
            if not self._traffic.is_given(index):
                self._traffic.give(index)

    def finish(self) -> bool:
        """Return when all objectives' parameters hold the servers' new weights; there is nothing to apply here."""
        self._traffic.finish()
        return False

    def settings(self) -> dict[str, Setting]:
        return self._traffic.settings()

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()


def _check(parameters: Sequence[nn.Parameter], *, num_servers: int) -> None:
    kinds = {str(parameter.dtype) for parameter in parameters} - {"torch.float32"}
    if kinds:
        raise UsageError(f"backend grpc_ps serves weights of torch.float32, not {', '.join(sorted(kinds))}")
    count = sum(parameter.numel() for parameter in parameters)
    if count < num_servers:
        raise UsageError(f"backend grpc_ps: {num_servers} servers for {count} weights; give fewer servers")


def _flat_gradient(parameter: nn.Parameter) -> torch.Tensor:
    """A parameter's gradient, in the order of the parameter's own memory; zeros if there is none."""
    gradient = parameter.grad
    if gradient is None:
        gradient = torch.zeros_like(parameter)
    elif gradient.stride() != parameter.stride():
        gradient = torch.empty_like(parameter).copy_(gradient)
    return flat_in_memory(gradient.detach())
