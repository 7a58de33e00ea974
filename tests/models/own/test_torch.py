"""A user's own torch model as a workload: its facts, and replicas that train as those of any other."""

import numpy as np
import pytest
import torch

from dlscale.base.errors import UsageError
from dlscale.models.own import own_workload
from dlscale.models.own.facts import read_facts
from dlscale.models.own.model import FilePlace
from dlscale.models.workload import Execution, Input, Shard

from .conftest import factory


def test_facts_are_those_of_the_file(write_file):
    path = write_file()
    facts = read_facts(path)
    assert (facts.file, facts.framework, facts.input_shape) == ("mine.py", "torch", [6])
    assert (facts.num_parameters, facts.forward_flops_per_sample) == (
        6 * 8 + 8 + 8 * 2 + 2,
        2 * (6 * 8 + 8 * 2),
    )
    assert (facts.num_samples, facts.num_classes, facts.local_batch) == (200, 2, 32)
    assert (facts.optimizer, facts.learning_rate, facts.random) == ("Adam", 2e-3, True)
    assert facts.metrics == {"accuracy": True, "loss": False}
    assert str(path.parent) not in facts.model_dump_json()
    other = read_facts(write_file(("2e-3", "3e-3"), name="other.py"))
    assert (other.file, other.data.split(":")[1]) == ("other.py", facts.data.split(":")[1])
    assert other.digest != facts.digest


def test_first_weights_depend_on_the_seed_alone_and_are_torchs_own(write_file):
    make = factory(write_file())
    one, same, other = (make(shard=Shard(), seed=seed) for seed in (3, 3, 4))
    for left, right in zip(one.weights(), same.weights(), strict=True):
        np.testing.assert_array_equal(left, right)
    assert np.any(one.weights()[0] != other.weights()[0])
    torch.manual_seed(3)
    network = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    np.testing.assert_array_equal(one.weights()[0], network[0].weight.detach().numpy().T)


def test_a_step_can_be_repeated_whatever_was_drawn_meanwhile(write_file):
    """Audits and gates replay steps: dropout must be the same again, and another one in the next step."""
    make = factory(write_file())
    one = make(shard=Shard(), seed=3)
    first = one.gradients()
    state_after = one.state()
    second = one.gradients()
    assert np.any(first[0] != second[0])
    torch.manual_seed(99)
    other = make(shard=Shard(), seed=3)
    other.restore(state_after)
    for left, right in zip(other.gradients(), second, strict=True):
        np.testing.assert_array_equal(left, right)


def test_the_learning_rate_of_a_target_takes_the_place_of_the_files(write_file):
    replica = factory(write_file(), learning_rate=0.5)(shard=Shard(), seed=1)
    assert [group["lr"] for group in replica.objectives[0].optimizer.param_groups] == [0.5]


def test_a_schedule_and_a_largest_norm_hold_in_every_step(write_file):
    """The rate follows the number of the step, also of a training that is resumed; norms are of all gradients."""
    text = "\nclip_norm = 1e-3\n\ndef schedule(step):\n    return 0.5**step\n\nloss ="
    make = factory(write_file(("\nloss =", text), ("torch.optim.Adam(", "torch.optim.SGD(")))
    replica = make(shard=Shard(), seed=1)
    for step in range(3):
        before, gradients = replica.weights(), replica.gradients()
        (group,) = replica.objectives[0].optimizer.param_groups
        assert group["lr"] == pytest.approx(2e-3 * 0.5**step)
        replica.apply([100 * gradient for gradient in gradients])
        changes = [new - old for new, old in zip(replica.weights(), before, strict=True)]
        length = np.sqrt(sum(float(np.sum(change**2)) for change in changes))
        assert length == pytest.approx(1e-3 * group["lr"], rel=0.05)
    other = make(shard=Shard(), seed=1)
    other.restore(replica.state())
    assert other.objectives[0].optimizer.param_groups[0]["lr"] == pytest.approx(2e-3 * 0.5**3)
    other.set_learning_rate(1.0)
    other.gradients()
    assert other.objectives[0].optimizer.param_groups[0]["lr"] == pytest.approx(0.5**3)
    assert other.learning_rate() == 1.0


def test_images_are_seen_as_the_file_gives_them(write_file):
    """(N, C, H, W) without gaps, as in a loop of the user's own, and weights in the order of memory of the file."""
    text = """
import torch

class Looks(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(3, 1, 1))
        self.kernel = torch.nn.Parameter(torch.zeros(3, 2, 3, 2))

    def forward(self, images):
        flat = images.view(images.size(0), 3, 20)
        return (flat * self.scale[:, :, 0]).sum(2) + self.kernel.sum()

def model():
    return Looks().to(memory_format=torch.channels_last)

def loss(outputs, labels):
    return ((outputs - labels) ** 2).mean()

def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.1)

class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        image = torch.arange(60.0).view(3, 4, 5) + torch.rand(1)
        return image, image.sum((1, 2))

def data():
    return Images()
"""
    make = factory(write_file(text=text))
    replica = make(shard=Shard(), seed=1)
    assert replica.objectives[0].parameters[1].is_contiguous(memory_format=torch.channels_last)
    replica.gradients()
    assert replica.losses()[0] < 1e-6, "labels are the sums of the same images, drawn once per sample"
    (images, _) = replica.next_batch()
    np.testing.assert_allclose(
        images[0, 1].numpy().ravel() - images[0, 1, 0, 0].item(), np.arange(20), atol=1e-5
    )
    again = make(shard=Shard(), seed=1)
    again.gradients()
    np.testing.assert_array_equal(again.next_batch()[0].numpy(), images.numpy())


def test_what_is_measured_draws_the_same_whenever_it_is_read(write_file):
    path = write_file(
        ("    return features, ", "    return Noisy()\n    return features, "),
        (
            "def data():",
            "class Noisy:\n    __len__ = lambda _: 100\n"
            "    __getitem__ = lambda _, index: (np.random.normal(size=6), index % 2)\n\ndef data():",
        ),
    )
    workload = own_workload(read_facts(path), FilePlace(path, path.absolute()))

    def reads(*pieces, seed):
        samples = workload.data().open_samples(workload.input("own"), workload.preset(), seed=seed)
        return [samples.read(np.asarray(piece))[0] for piece in pieces]

    one, other, again = reads([1, 2], [3, 4], [1, 2], seed=None)
    np.testing.assert_array_equal(one, again)
    assert not np.allclose(one, other)
    first, _, later = reads([1, 2], [3, 4], [1, 2], seed=(1, 0))
    assert not np.allclose(first, later), "a training sees other noise in each epoch"


def test_samples_that_cannot_be_read_are_left_out_on_demand(write_file):
    text = """
import numpy as np
import torch

model = lambda: torch.nn.Linear(2, 2)
loss = torch.nn.CrossEntropyLoss()
optimizer = lambda parameters: torch.optim.SGD(parameters, lr=0.1)

class Samples:
    def __len__(self):
        return 300

    def __getitem__(self, index):
        if index == 101:
            raise OSError("damaged")
        return np.ones(2), index % 2

data = Samples
"""
    path = write_file(text=text)
    make = factory(path, source=Input(path=path, skip_bad=True))
    replica = make(shard=Shard(), seed=1)
    for _ in range(40):
        replica.next_batch()
    assert replica.num_skipped() >= 1
    strict = factory(path, source=Input(path=path))(shard=Shard(), seed=1)
    with pytest.raises(UsageError, match=r"mine.py, line 15: sample 101 of data\(\) raised OSError: damaged"):
        [strict.next_batch() for _ in range(40)]


def test_generators_and_resident_tensors(write_file):
    whole = "    features = np.random.default_rng(0).normal(size=(200, 6))\n"
    body = whole + "    return features, (features[:, 0] > 0).astype(int)\n"
    yields = "    for sample in zip(features, (features[:, 0] > 0).astype(int)):\n        yield sample\n"
    facts = read_facts(write_file((body, whole + yields), name="stream.py"))
    assert facts.num_samples == 200
    assert facts.data.split(":")[1] == read_facts(write_file()).data.split(":")[1], "the same samples"
    make = factory(write_file(name="resident.py"), source=Input())
    batch = make(shard=Shard(), seed=1).next_batch()
    assert batch[0].shape == (8, 6)


def test_a_process_with_other_samples_or_another_text_is_refused(write_file):
    entropy = (
        ("default_rng(0)", "default_rng(ENTROPY)"),
        ("torch\n", "torch\nENTROPY = np.random.SeedSequence().entropy\n"),
    )
    path = write_file(*entropy)
    facts = read_facts(path)
    copy = path.parent / "elsewhere" / path.name  # as another process runs it
    copy.parent.mkdir()
    copy.write_bytes(path.read_bytes())
    workload = own_workload(facts, FilePlace(copy, copy.absolute()))
    with pytest.raises(
        UsageError, match=r"mine.py, line 14: data\(\) gives other samples .* seed what it draws"
    ):
        workload.data().open_samples(workload.input("own"), workload.preset(), seed=(0, 0))
    changed = write_file(name="changed.py")
    with pytest.raises(UsageError, match="the copy in its folder was changed"):
        own_workload(facts, FilePlace(changed, path.absolute())).program("torch", Execution())


def test_weights_that_stay_are_the_same_on_every_rank(write_file):
    """Only trainable weights are broadcast."""
    frozen = "    return torch.nn.Sequential(Frozen(), "
    layer = """
class Frozen(torch.nn.Linear):
    def __init__(self):
        super().__init__(6, 6)
        self.requires_grad_(False)
"""
    path = write_file(("    return torch.nn.Sequential(", frozen), ("def model()", f"{layer}\ndef model()"))
    facts = read_facts(path)
    assert facts.num_parameters == 74
    make = factory(path)
    outputs = []
    for index in range(2):
        replica = make(shard=Shard(), seed=5 + index)
        replica.load([np.ones_like(weight) for weight in replica.weights()])
        outputs.append(replica.predict(np.ones((2, 6), np.float32)))
    np.testing.assert_array_equal(*outputs)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler uses what torch deprecates
def test_a_compiled_network_draws_what_it_would_draw_without(write_file):
    """The replay of an audit is not compiled."""
    path = write_file()
    eager, compiled = (factory(path, compiled=compiled)(shard=Shard(), seed=3) for compiled in (False, True))
    for left, right in zip(eager.gradients(), compiled.gradients(), strict=True):
        np.testing.assert_allclose(left, right, atol=1e-6)
