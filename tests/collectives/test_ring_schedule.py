"""The arithmetic of the ring, proved on P = 1 .. 64 ranks without MPI."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

try:
    import dlscale.collectives.ring._engine as engine
except ImportError:
    engine = None  # the mark says what is missing

pytestmark = pytest.mark.requires("ring")

SENT, RECEIVED, ADDS, RECEIVED_BEFORE, SENT_BEFORE = range(5)

unhurried = settings(deadline=None)  # a busy machine is no failure

sizes = st.integers(1, 64)
counts = st.integers(0, 300)
segments = st.integers(1, 40)


def schedules(count, size, max_segment):
    return [engine.ring_schedule(count, rank, size, max_segment) for rank in range(size)]


@unhurried
@given(count=st.integers(0, 2**50), size=st.integers(1, 2**16))
def test_chunks_tile_the_buffer_evenly(count, size):
    chunks = [engine.chunk_bounds(count, size, chunk) for chunk in {0, 1 % size, size // 2, size - 1}]
    lengths = {end - begin for begin, end in chunks}
    assert lengths <= {count // size, count // size + 1}
    assert engine.chunk_bounds(count, size, 0)[0] == 0
    assert engine.chunk_bounds(count, size, size - 1)[1] == count
    for chunk in {1 % size, size // 2} - {0}:
        assert engine.chunk_bounds(count, size, chunk - 1)[1] == engine.chunk_bounds(count, size, chunk)[0]


@unhurried
@given(count=counts, size=sizes, max_segment=segments)
def test_neighbours_agree_on_every_message(count, size, max_segment):
    ranks = schedules(count, size, max_segment)
    for rank, messages in enumerate(ranks):
        sent = [message[SENT] for message in messages]
        assert sent == [message[RECEIVED] for message in ranks[(rank + 1) % size]]
        assert all(0 <= begin <= end <= count and end - begin <= max_segment for begin, end in sent)


@unhurried
@given(count=counts, size=sizes, max_segment=segments)
def test_a_rank_sends_its_share_of_twice_the_buffer(count, size, max_segment):
    for messages in schedules(count, size, max_segment):
        num_sent = sum(end - begin for begin, end in (message[SENT] for message in messages))
        # 2 (P - 1) / P of the buffer; chunks are whole elements, so up to one element off per lap.
        assert abs(num_sent - 2 * (size - 1) * count / size) <= 2


@dataclass
class Rank:
    """The engine's loop on one rank, over a network that buffers nothing.

    An element's value counts in its byte r how often rank r's own value went into it.
    """

    messages: list
    values: list
    num_posted: int = 0
    num_received: int = 0
    num_started: int = 0
    num_sent: int = 0
    under_way: dict = field(default_factory=dict)  # what each started message held when it started

    def turn(self, previous, window):
        """Post, start and receive what may be. True if anything moved."""
        end = len(self.messages)
        before = (self.num_posted, self.num_started, self.num_received)
        while self.num_posted < min(end, self.num_received + window):
            message = self.messages[self.num_posted]
            if self.num_sent < message[SENT_BEFORE]:
                break
            if not message[ADDS]:  # it may land at any time from now on
                for k in range(*message[RECEIVED]):
                    self.values[k] = None
            self.num_posted += 1
        while self.num_started < min(end, self.num_sent + window):
            message = self.messages[self.num_started]
            if self.num_received < message[RECEIVED_BEFORE]:
                break
            self.under_way[self.num_started] = self.values[slice(*message[SENT])]
            self.num_started += 1
        if self.num_received < min(self.num_posted, previous.num_started):
            self.receive(previous)
        return before != (self.num_posted, self.num_started, self.num_received)

    def receive(self, previous):
        i = self.num_received
        came = previous.under_way.pop(i)
        assert came == previous.values[slice(*previous.messages[i][SENT])], "overwritten while under way"
        place = slice(*self.messages[i][RECEIVED])
        if self.messages[i][ADDS]:
            came = [mine + theirs for mine, theirs in zip(self.values[place], came, strict=True)]
        self.values[place] = came
        self.num_received += 1
        previous.num_sent += 1


@unhurried
@given(
    count=st.integers(0, 150),
    size=sizes,
    max_segment=st.integers(1, 5),
    window=st.integers(1, 5),
    chance=st.randoms(use_true_random=False),
)
def test_every_contribution_enters_every_element_once(count, size, max_segment, window, chance):
    ranks = [
        Rank(messages, [1 << 8 * rank] * count)
        for rank, messages in enumerate(schedules(count, size, max_segment))
    ]
    order = list(range(size))
    while any(rank.num_received < len(rank.messages) for rank in ranks):
        chance.shuffle(order)
        moved = [ranks[i].turn(ranks[i - 1], window) for i in order]
        assert any(moved), "every rank waits for another"
    for rank in ranks:
        assert rank.values == [sum(1 << 8 * r for r in range(size))] * count


@pytest.mark.parametrize(("rank", "size", "max_segment"), [(3, 3, 1), (0, 3, 0)])
def test_a_schedule_that_cannot_be_is_refused(rank, size, max_segment):
    with pytest.raises(ValueError, match="must be"):
        engine.ring_schedule(7, rank, size, max_segment)


def test_a_chunk_beyond_the_last_is_refused():
    with pytest.raises(ValueError, match="less than size"):
        engine.chunk_bounds(7, 3, 3)
