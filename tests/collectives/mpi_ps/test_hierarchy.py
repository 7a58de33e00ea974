"""Who sends to whom, and masters between workers and a super-master, without MPI."""

import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.collectives.algorithms.downpour import Options
from dlscale.collectives.backend import Setup
from dlscale.collectives.mpi_ps.hierarchy import Ranks, RelaySession
from dlscale.collectives.mpi_ps.sessions import DownpourSession

RULES = {"optimizer": "sgd", "rate": 0.5, "momentum": 0.0, "divide_by_staleness": False}


@pytest.mark.parametrize(("num_workers", "num_masters"), [(2, 1), (3, 2), (7, 3)])
def test_every_worker_has_one_master_and_every_master_workers(num_workers, num_masters):
    ranks = Ranks(num_workers=num_workers, num_servers=num_masters + 1, num_masters=num_masters)
    masters = [num_workers + 1 + place for place in range(num_masters)]
    assert ranks.children(num_workers) == set(masters)
    assert sorted(worker for master in masters for worker in ranks.children(master)) == list(
        range(num_workers)
    )
    assert all(ranks.children(master) for master in masters)
    for worker in range(num_workers):
        (master,) = ranks.parents(worker)
        assert worker in ranks.children(master)
        assert ranks.parents(master) == [num_workers]


def test_without_masters_every_worker_sends_to_every_server():
    ranks = Ranks(num_workers=3, num_servers=2)
    assert [ranks.parents(worker) for worker in range(3)] == [[3, 4]] * 3
    assert [ranks.children(server) for server in (3, 4)] == [{0, 1, 2}] * 2
    assert [ranks.name(rank) for rank in (0, 3, 4)] == ["worker 0", "server 0", "server 1"]


@pytest.mark.parametrize(
    ("options", "num_servers", "said"),
    [
        (
            {"masters": 4},
            5,
            "masters of algorithm downpour is 4 on 3 ranks: a master would be without workers",
        ),
        ({"masters": 2}, 1, "set servers=3"),
        ({}, 2, ""),
        ({"masters": 2}, 3, ""),
    ],
)
def test_masters_need_workers_and_servers(options, num_servers, said):
    setup = Setup(framework="torch", num_ranks=3, num_servers=num_servers)
    if not said:
        Options(**options).check_setup(setup)
        return
    with pytest.raises(UsageError, match=said):
        Options(**options).check_setup(setup)


def test_masters_that_make_no_sense_are_refused():
    with pytest.raises(UsageError, match="0 or more"):
        Options(masters=-1)


class Link:
    """A master's connection to a super-master in the same process (`hierarchy.Parent`)."""

    def __init__(self, master, above, mail):
        self.steps, self._master, self._above, self._mail = [0], master, above, mail

    def load(self, values):
        self._above.load(values)

    def push(self, values, *, count):
        self._above.push(self._master, values.copy(), step=self.steps[0], count=count)

    def fetch(self, into):
        self._above.fetch(self._master)
        self.collect(into)

    def look(self, into):
        steps = self.steps
        self.fetch(into)
        self.steps = steps

    def collect(self, into):
        into[:], self.steps = self._mail.pop(self._master)

    def counts(self):
        return [self._above.counts()]

    def end(self):
        self._mail["ended"] = [*self._mail.get("ended", ()), self._master]


class Tree:
    """Workers 0 and 1 under master 0, worker 2 under master 1; one weight of 8."""

    def __init__(self, *, answers=True, **rules):
        self.mail, self.had = {}, {}
        self.above = DownpourSession(num_elements=1, reply=self._to_master, answers=answers, **RULES | rules)
        self.masters = [
            RelaySession(
                num_elements=1,
                reply=self._to_worker,
                parent=Link(master, self.above, self.mail),
                is_first=master == 0,
            )
            for master in range(2)
        ]

    def _to_master(self, master, values, step):
        self.mail[master] = values.copy(), [step]

    def _to_worker(self, worker, values, step):
        self.had[worker] = values[0], step

    def of(self, worker):
        return self.masters[worker // 2]

    def fetch(self, worker):
        self.of(worker).fetch(worker)
        return self.had.get(worker)

    def look(self, worker):
        self.of(worker).look(worker)
        return self.had[worker][0]

    def push(self, worker, value):
        step = self.had[worker][1]
        self.of(worker).push(worker, np.float32([value]), step=step, count=1)


@pytest.fixture
def tree():
    made = Tree()
    made.masters[0].load(np.float32([8]))
    return made


def test_workers_wait_for_the_weights_that_come_through_their_own_master():
    made = Tree()
    assert made.fetch(1) is None
    made.masters[0].load(np.float32([8]))
    assert made.had == {1: (8, 0)}
    assert made.fetch(2) == (8, 0)


def test_a_master_hands_updates_on_and_its_workers_have_what_it_was_answered(tree):
    for worker in range(3):
        tree.fetch(worker)
    tree.push(0, 2)  # to 7
    tree.push(2, 4)  # to 5, through the other master
    assert tree.fetch(0) == (7, 1)
    assert tree.look(0) == 5
    assert tree.fetch(1) == (5, 2), "it has not pushed: the weights of now"
    assert tree.fetch(2) == (5, 2)
    assert tree.look(2) == 5


def test_the_super_master_counts_the_staleness_of_every_workers_push(tree):
    for worker in range(3):
        tree.fetch(worker)
    for worker in (0, 2, 1):  # planted: each has missed those before it
        tree.push(worker, 1)
    expected = {"applied": 3, "updates": 3, "staleness": {"0": 1, "1": 1, "2": 1}}
    assert tree.masters[0].counts() == tree.masters[1].counts() == expected
    for master in tree.masters:
        master.end()
    assert tree.mail["ended"] == [0, 1]


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adagrad", "adam"])
def test_one_master_gives_the_bits_of_none(optimizer):
    numbers = np.random.default_rng(3)
    gradients = numbers.normal(size=(20, 2)).astype(np.float32)
    rules = {"optimizer": optimizer, "momentum": 0.9, "rate": 0.1}
    tree, flat = Tree(**rules), {}

    def reply(worker, values, step):
        flat[worker] = values[0], step

    session = DownpourSession(num_elements=1, reply=reply, **RULES | rules)
    for made in (tree.masters[0], session):
        made.load(np.float32([8]))
    for pair in gradients:
        for worker, gradient in enumerate(pair):
            session.fetch(worker)
            assert tree.fetch(worker) == flat[worker]
            tree.push(worker, gradient)
            session.push(worker, np.float32([gradient]), step=flat[worker][1], count=1)
    assert tree.masters[0].counts() == session.counts()
