"""What servers do with messages, whatever carries them."""

import numpy as np
import pytest

from dlscale.collectives.servers.messages import Kind

DOWNPOUR = {"algorithm": "downpour", "rate": 0.5}


def fetched(links):
    found = np.empty(1, np.float32)
    links.fetch(found)
    return found[0], links.steps[0]


def push(links, value, *, count=1):
    links.push(np.float32([value]), count=count)


def answer(links):
    found = np.empty(1, np.float32)
    links.collect(found)
    return found[0]


def counts(links):
    return links.counts()[0]


def test_a_mean_has_the_same_bits_whoever_comes_first(job):
    given = np.float32([[0.1, 1e8], [0.2, 1], [0.3, -1e8]])
    expected = (given[0] + given[1] + given[2]) / np.float32(3)
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        workers = job(3, num_servers=2).workers(0, 0, algorithm="sync")
        for worker in order:
            workers[worker].push(given[worker], count=1)
        for links in workers:
            found = np.empty(2, np.float32)
            links.collect(found)
            assert found.tolist() == expected.tolist()
        assert [links.counts() for links in workers] == [[{"applied": 3}] * 2] * 3


def test_changes_add_up_as_they_come(job):
    one, other = job(2).workers(8, algorithm="asynchronous")
    push(one, 1)
    assert answer(one) == 9
    push(other, -3)
    assert answer(other) == 6
    assert counts(one) == {"applied": 2, "updates": 2, "staleness": {"0": 1, "1": 1}}


def test_the_centre_moves_towards_whoever_comes(job):
    one, other = job(2).workers(8, algorithm="easgd", share=0.25)
    for links, own, centre in ((one, 4, 8), (other, 11, 7), (one, 8, 8)):
        push(links, own, count=5)
        assert answer(links) == centre
    assert counts(other) == {"applied": 15, "updates": 3, "staleness": {"0": 1, "1": 2}}


def test_pushes_are_applied_as_they_come_and_their_staleness_is_counted(job):
    one, other = job(2).workers(8, **DOWNPOUR)
    push(one, 2)
    assert fetched(one) == (7, 1)
    push(one, 2, count=3)
    push(other, 4)
    assert counts(other)["staleness"] == {"0": 2, "2": 1}
    assert fetched(one) == (4, 3)
    assert counts(one)["applied"] == 5


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adagrad", "adam"])
def test_one_master_gives_the_bits_of_none(job, optimizer):
    rules = {"algorithm": "downpour", "optimizer": optimizer, "momentum": 0.9, "rate": 0.1}
    gradients = np.random.default_rng(3).normal(size=(10, 2)).astype(np.float32)
    found = []
    for num_masters in (0, 1):
        workers = job(2, num_servers=1 + num_masters, num_masters=num_masters).workers(8, **rules)
        for pair in gradients:
            for links, gradient in zip(workers, pair, strict=True):
                fetched(links)
                push(links, gradient)
                counts(links)  # it has been taken up
        kept, num_updates = workers[1].kept()
        found.append(([array.tolist() for array in kept], num_updates, counts(workers[0])))
    assert found[0] == found[1]


def test_masters_hand_updates_on_and_the_super_master_counts_what_each_had_missed(job):
    """Workers 0 and 1 are under master 0, worker 2 under master 1."""
    masters = job(4, num_servers=3, num_masters=2)
    zero, one, two, _ = masters.workers(8, **DOWNPOUR)
    push(zero, 2)  # to 7
    counts(zero)
    push(two, 4)  # to 5, through the other master
    counts(two)
    assert fetched(zero) == (7, 1)
    assert zero.kept()[0][0] == 5
    assert fetched(one) == (5, 2), "it has not pushed: the weights of now"
    assert fetched(two) == (5, 2)
    assert counts(one)["staleness"] == {"0": 1, "1": 1}
    for links in (zero, one, two):
        links.end()
    masters.leave()
    assert masters.join() == {}


def test_who_has_gone_is_dropped_unless_others_wait(job, capfd):
    two = job(2)
    one, _ = two.workers(8, **DOWNPOUR)
    two.dead[1] = "worker 1 died"
    push(one, 2)
    assert fetched(one)[0] == 7
    two.leave(0)
    assert two.join() == {}
    assert "worker 1 died and was dropped; 1 goes on" in capfd.readouterr().err

    together = job(2)
    together.workers(8, algorithm="sync")
    together.dead[1] = "worker 1 died"
    assert together.join() == {2: "worker 1 died, and the others wait for it"}
    assert together.servers[2].failure == together.errors[2], "the transport tells the others"


@pytest.mark.parametrize("harm", ["twice", "size", "trainer", "kind", "another"])
def test_what_may_not_come_ends_the_server_in_one_line(job, harm):
    made = job(2)
    one, _ = made.workers(8, 8, algorithm="sync")
    match harm:
        case "twice":
            one.push(np.zeros(2, np.float32), count=1)
            one.push(np.zeros(2, np.float32), count=1)
        case "size":
            made.worker(0, num_elements=2, algorithm="sync")._bounds = [(0, 1)]
            one._bounds = [(0, 1)]
            one.push(np.zeros(2, np.float32), count=1)
        case "trainer":
            one._number = 7
            one.push(np.zeros(2, np.float32), count=1)
        case "kind":
            one.send(Kind.VALUES, np.zeros(2, np.float32))
        case "another":
            made.worker(1, num_elements=3, algorithm="sync")
    (error,) = made.join().values()
    assert "worker" in error
    assert "\n" not in error
