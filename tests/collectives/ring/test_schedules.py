"""The schedules between nodes, proved on P = 1 .. 64 ranks by a simulator without MPI.

The simulator does what `Exchange` does, over a network that delivers as late as it is allowed to. An element's value
is an expression: a rank's own value, or a reduction of expressions in order of rank.
"""

import math
from collections import deque
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

try:
    from dlscale.collectives.ring import _engine as engine
except ImportError:
    engine = None  # the mark says what is missing

pytestmark = pytest.mark.requires("ring")

# All small ones, and larger ones around the powers of 2, where algorithms change their shape.
SIZES = (*range(1, 21), 31, 32, 33, 47, 63, 64)
ALLREDUCES = ["one_shot", "recursive_doubling", "halving_doubling", "ring", "direct"]
PLANS = [
    *(("allreduce", algorithm) for algorithm in ALLREDUCES),
    *(
        (operation, algorithm)
        for operation in ("reduce_scatter", "allgather")
        for algorithm in ("ring", "direct")
    ),
    ("broadcast", "tree"),
    ("barrier", "dissemination"),
]
EACH_PLAN = pytest.mark.parametrize("plan", PLANS, ids="-".join)


class Send(NamedTuple):
    peer: int
    bounds: tuple[int, int]
    received_before: int


class Receive(NamedTuple):
    peer: int
    bounds: tuple[int, int]
    arrival: str
    completes: bool
    sent_before: int
    received_before: int


class Schedule(NamedTuple):
    sends: list[Send]
    receives: list[Receive]
    longest_in_scratch: int
    largest_reduction: int


def schedules(plan, size, count, max_segment, root=0):
    ranks = []
    for rank in range(size):
        sends, receives, *limits = engine.network_schedule(*plan, rank, size, count, max_segment, root)
        ranks.append(Schedule([Send(*send) for send in sends], [Receive(*one) for one in receives], *limits))
    return ranks


def chunk(rank, size, count):
    begin = rank * (count // size) + min(rank, count % size)
    return range(begin, begin + count // size + (rank < count % size))


class Algebra:
    """Expressions by number: rank r's own value is r, a reduction is numbered when it first occurs."""

    def __init__(self, size):
        self.size = size
        self.numbers = {}
        self.ranks = {r: (r,) for r in range(size)}  # whose values are in it, with repetitions
        self.all = tuple(range(size))

    def reduce(self, terms):
        number = self.numbers.setdefault(terms, self.size + len(self.numbers))
        if number not in self.ranks:
            self.ranks[number] = tuple(sorted(rank for term in terms for rank in self.ranks[term]))
        return number

    def is_complete(self, number):
        return self.ranks[number] == self.all


class Message(NamedTuple):
    number: int  # in the sender's stream
    bounds: tuple[int, int]
    values: list  # when it started
    copied: bool  # the sender need not wait for the receiver


class Rank:
    """One rank of `Exchange`; `None` is an element that a message may overwrite at any time."""

    def __init__(self, rank, schedule, values, window, network):
        self.rank, self.schedule, self.values, self.window, self.network = (
            rank,
            schedule,
            values,
            window,
            network,
        )
        self.num_slots = max(window, 2 * schedule.largest_reduction)
        self.posted = self.received = self.started = self.sent = 0
        self.slots_posted = self.slots_reduced = self.peak_slots = 0
        self.arrived = {}  # number of a posted receive -> its values
        self.completed = set()  # numbers of sends
        self.held = []

    def done(self):
        return self.sent == len(self.schedule.sends) and self.received == len(self.schedule.receives)

    def turn(self):
        """Do what can be done. True if anything moved."""
        before = (self.posted, self.received, self.started, self.sent)
        while self.sent in self.completed:
            self.sent += 1
        while self.work_off_receive():
            pass
        self.post_receives()
        self.start_sends()
        return before != (self.posted, self.received, self.started, self.sent)

    def post_receives(self):
        receives = self.schedule.receives
        while self.posted < min(len(receives), self.received + self.num_slots):
            receive = receives[self.posted]
            if receive.arrival == "stored":
                if self.sent < receive.sent_before or self.received < receive.received_before:
                    return
                for k in range(*receive.bounds):
                    self.values[k] = None
            else:
                if self.slots_posted == self.slots_reduced + self.num_slots:
                    return
                self.slots_posted += 1
                self.peak_slots = max(self.peak_slots, self.slots_posted - self.slots_reduced)
            self.network.post(self, receive.peer, self.posted)
            self.posted += 1

    def start_sends(self):
        sends = self.schedule.sends
        while self.started < min(len(sends), self.sent + self.window):
            send = sends[self.started]
            if self.received < send.received_before:
                return
            values = self.values[slice(*send.bounds)]
            assert None not in values, "sent while something may land there"
            self.network.start(self, send.peer, self.started, send.bounds, values)
            self.started += 1

    def work_off_receive(self):
        if self.received not in self.arrived:
            return False
        receive = self.schedule.receives[self.received]
        place = slice(*receive.bounds)
        if receive.arrival == "reduced" and self.sent < receive.sent_before:
            return False
        came = self.arrived.pop(self.received)
        if receive.arrival == "stored":
            assert all(value is None for value in self.values[place]), (
                "written while something may land there"
            )
            self.values[place] = came
        else:
            self.held.append((receive.peer, receive.bounds, came))
            if receive.arrival == "reduced":
                self.values[place] = self.reduce(receive)
        self.received += 1
        return True

    def reduce(self, receive):
        assert all(bounds == receive.bounds for _, bounds, _ in self.held)
        mine = (self.rank, receive.bounds, self.values[slice(*receive.bounds)])
        ordered = sorted([mine, *self.held], key=lambda term: term[0])
        self.slots_reduced += len(self.held)
        self.held = []
        reduced = [
            self.network.algebra.reduce(terms)
            for terms in zip(*(values for _, _, values in ordered), strict=True)
        ]
        if not self.network.duplicates:
            assert all(self.network.algebra.is_complete(value) == receive.completes for value in reduced)
        return reduced


class Network:
    """Keeps the order of messages between two ranks and nothing else. `copies` says of each message whether it is
    copied when it is sent or leaves the sender only when the receiver is ready for it.
    """

    def __init__(self, algebra, copies, *, duplicates):
        self.algebra, self.copies, self.duplicates = algebra, copies, duplicates
        self.senders, self.receivers = {}, {}

    def start(self, sender, peer, number, bounds, values):
        message = Message(number, bounds, values, self.copies())
        if message.copied:
            sender.completed.add(number)
        self.senders.setdefault((sender.rank, peer), deque()).append((sender, message))
        self.deliver(sender.rank, peer)

    def post(self, receiver, peer, number):
        self.receivers.setdefault((peer, receiver.rank), deque()).append((receiver, number))
        self.deliver(peer, receiver.rank)

    def deliver(self, source, target):
        sent, posted = (side.get((source, target)) for side in (self.senders, self.receivers))
        while sent and posted:
            (sender, message), (receiver, number) = sent.popleft(), posted.popleft()
            assert message.bounds == receiver.schedule.receives[number].bounds, "sender and receiver disagree"
            if not message.copied:
                assert sender.values[slice(*message.bounds)] == message.values, "overwritten while under way"
                sender.completed.add(message.number)
            receiver.arrived[number] = message.values


def simulate(plan, size, count, *, max_segment=1000, window=4, root=0, copies=lambda: False, order=None):
    """Run the schedules of all ranks to their end. Returns the expression of every element on every rank."""
    algebra = Algebra(size)
    network = Network(algebra, copies, duplicates=plan[0] == "barrier")
    ranks = [
        Rank(r, schedule, [r] * count, window, network)
        for r, schedule in enumerate(schedules(plan, size, count, max_segment, root))
    ]
    turns = list(ranks)
    while not all(rank.done() for rank in ranks):
        if order:
            order(turns)
        moved = [rank.turn() for rank in turns]
        assert any(moved), "every rank waits for another"
    assert not any(network.senders.values()), "sent to somebody who does not expect it"
    for rank in ranks:
        assert rank.peak_slots <= rank.num_slots
        messages = [*rank.schedule.sends, *rank.schedule.receives]
        assert all(
            0 <= begin < end <= count and end - begin <= max_segment for _, (begin, end), *_ in messages
        )
        scratch = [one for one in rank.schedule.receives if one.arrival != "stored"]
        assert rank.schedule.longest_in_scratch == max([0, *(b - a for _, (a, b), *_ in scratch)])
    return algebra, [rank.values for rank in ranks]


def check(plan, size, count, **how):
    algebra, values = simulate(plan, size, count, **how)
    operation, algorithm = plan
    root = how.get("root", 0)
    if operation == "allreduce":
        assert all(values[0] == each for each in values), "ranks computed different expressions"
        assert all(algebra.is_complete(value) for value in values[0])
        if algorithm in ("one_shot", "direct") and size > 1:
            assert set(values[0]) <= {algebra.reduce(tuple(range(size)))}, (
                "not one reduction in order of rank"
            )
    elif operation == "reduce_scatter":
        for rank, each in enumerate(values):
            assert all(algebra.is_complete(each[k]) for k in chunk(rank, size, count))
    elif operation == "allgather":
        assert all(each[k] == c for each in values for c in range(size) for k in chunk(c, size, count))
    elif operation == "broadcast":
        assert all(each == [root] * count for each in values)
    else:
        assert all(set(algebra.ranks[each[0]]) == set(range(size)) for each in values)


@EACH_PLAN
@pytest.mark.parametrize("size", SIZES)
def test_every_contribution_enters_every_element_once(plan, size):
    counts = [1] if plan[0] == "barrier" else sorted({0, 1, size - 1, size, size + 1, size + size // 2 + 2})
    # All at the sizes where algorithms change their shape, one at each other size: they take time.
    if size > 9 and size not in (16, 17, 31):
        counts = [2 if plan[1] == "one_shot" else counts[size % len(counts)]]  # one_shot never cuts
    for case, count in enumerate(counts, size):
        # Unbuffered messages are the worst case: whoever waits in a circle then, waits for ever.
        check(
            plan,
            size,
            count,
            max_segment=(1, 2, 1000)[case % 3],
            window=(1, 4)[case % 2],
            root=(case * 7) % size,
        )


@given(
    plan=st.sampled_from([plan for plan in PLANS if plan[0] != "barrier"]),
    size=st.integers(1, 9),
    count=st.integers(0, 70),
    max_segment=st.integers(1, 12),
    window=st.integers(1, 5),
    root=st.integers(0, 63),
    chance=st.randoms(use_true_random=False),
)
def test_no_timing_spoils_it(plan, size, count, max_segment, window, root, chance):
    check(
        plan,
        size,
        count,
        max_segment=max_segment,
        window=window,
        root=root % size,
        copies=lambda: chance.random() < 0.5,
        order=chance.shuffle,
    )


def surplus(size):
    """Power of two that doubling works on, and the ranks beyond it, which hand over and get back everything."""
    power = 1 << (size.bit_length() - 1)
    return power, size - power


def elements_sent(plan, size, count):
    """By all ranks together, exactly."""
    power, guests = surplus(size)
    return {
        ("allreduce", "one_shot"): size * (size - 1) * count,
        ("allreduce", "recursive_doubling"): power * int(math.log2(power)) * count + 2 * guests * count,
        ("allreduce", "halving_doubling"): 2 * (power - 1) * count + 2 * guests * count,
        ("allreduce", "ring"): 2 * (size - 1) * count,
        ("allreduce", "direct"): 2 * (size - 1) * count,
        ("barrier", "dissemination"): size * math.ceil(math.log2(size)) if size > 1 else 0,
    }.get(plan, (size - 1) * count)


@EACH_PLAN
@pytest.mark.parametrize(("count", "max_segment"), [(1, 500), (64, 500), (1001, 500), (2**33 + 1, 2**32)])
def test_elements_sent(plan, count, max_segment):
    if plan[0] == "barrier":
        count = 1
    for size in SIZES:
        sent = [
            sum(end - begin for _, (begin, end), _ in schedule.sends)
            for schedule in schedules(plan, size, count, max_segment)
        ]
        assert sum(sent) == elements_sent(plan, size, count)
        power, guests = surplus(size)
        if plan[1] in ("ring", "direct") or (plan[1] == "halving_doubling" and guests == 0):
            laps = 2 if plan[0] == "allreduce" else 1
            # Every rank its share, up to what whole elements allow: one element a message where ranges are halved
            # or an element per other rank where a rank sends all others the same chunk.
            off = (
                2 * math.log2(power)
                if plan[1] == "halving_doubling"
                else 1
                if plan[1] == "ring"
                else size - 1
            )
            assert all(abs(one - laps * (size - 1) * count / size) <= max(off, 2) for one in sent)


@pytest.mark.parametrize(
    ("what", "changed"), [("rank", {"rank": 3}), ("max_segment", {"max_segment": 0}), ("root", {"root": 3})]
)
def test_a_schedule_that_cannot_be_is_refused(what, changed):
    asked = {"rank": 0, "size": 3, "count": 7, "max_segment": 1, "root": 0, **changed}
    with pytest.raises(ValueError, match=what):
        engine.network_schedule("broadcast", "tree", **asked)


@pytest.mark.parametrize(
    ("operation", "algorithm", "said"),
    [
        ("allreduce", "rign", "choose one of: one_shot"),
        ("gather", "ring", "choose one of: allreduce"),
        ("broadcast", "ring", "another operation"),
    ],
)
def test_unknown_names_are_refused(operation, algorithm, said):
    with pytest.raises(ValueError, match=said):
        engine.network_schedule(operation, algorithm, 0, 3, 7, 1)
