"""GPT's facts, its text and samples, its network, and its measure of quality."""

import itertools
import os
import tomllib
from collections import Counter
from importlib import resources

import numpy as np
import pytest
import torch

from dlscale.base.errors import UsageError
from dlscale.models import load_workload
from dlscale.models.gpt import NETWORKS, data, grammar, quality
from dlscale.models.gpt._torch import Gpt
from dlscale.models.samples import BadSample
from dlscale.models.workload import Input, Shard

WORKLOAD = load_workload("gpt")


def test_the_published_network():
    """12 blocks of 12 D^2 + 13 D, a last norm, and both embeddings; D is 768."""
    width = 768
    assert WORKLOAD.preset("paper").num_parameters == (
        12 * (12 * width**2 + 13 * width) + 2 * width + (50_257 + 1024) * width
    )


def test_the_shipped_text_is_what_the_grammar_makes():
    """If the grammar changes: python -m dlscale.models.gpt.grammar > models/gpt/text.txt."""
    assert data.TEXT.read_bytes() == grammar.text()
    assert grammar.text(500, seed=1) != grammar.text(500, seed=2)


def test_the_target_is_out_of_reach_of_pairs_of_bytes():
    def entropy(counts):
        shares = np.array(list(counts.values())) / counts.total()
        return -np.sum(shares * np.log2(shares))

    text = data.TEXT.read_bytes()
    single, pairs = Counter(text), Counter(itertools.pairwise(text))
    studies = resources.files("dlscale.benchmarks.study") / "studies" / "time-to-solution.toml"
    goal = tomllib.loads(studies.read_text())["target"]["goals"]["gpt"]["tiny"]
    assert goal["threshold"] < entropy(pairs) - entropy(single) - 0.3


def test_each_byte_but_the_first_is_a_label_once(tmp_path):
    path = tmp_path / "text"
    content = os.urandom(3 * 5 + 4)  # three samples of 5, and some left
    path.write_bytes(content)
    samples = data.Windows(path, 5)
    assert len(samples) == 3
    tokens, labels = samples.read(np.array([0, 1, 2]))
    assert bytes(labels.reshape(-1).tolist()) == content[1:16]
    assert bytes(tokens.reshape(-1).tolist()) == content[:15]
    (again, _) = samples.read(np.array([2, 2]))
    np.testing.assert_array_equal(again, tokens[[2, 2]])
    path.write_bytes(content[:12])
    with pytest.raises(BadSample, match=r"sample 2: it has no 6 bytes from byte 10 on any more") as caught:
        samples.read(np.array([0, 2]))
    assert caught.value.index == 2


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda _: None, "No such file or directory; give a file of text as --data"),
        (lambda path: path.mkdir(), "is a folder, and gpt reads the bytes of one file"),
        (os.mkfifo, "is no regular file, and gpt"),
        (
            lambda path: path.touch(),
            "has 0 bytes, 0 samples of 128 tokens, and a step needs 8, one global batch",
        ),
        (
            lambda path: path.write_bytes(bytes(8 * 128)),
            "has 1,024 bytes, 7 samples of 128 tokens, and a step needs 8",
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line(tmp_path, make, said):
    path = tmp_path / "text"
    make(path)
    with pytest.raises(UsageError, match=rf"^{path}: {said}[^\n]*$"):
        WORKLOAD.input("tiny", path, num_samples=8)


def test_the_published_network_takes_random_tokens_alone():
    assert WORKLOAD.input("paper").synthetic
    tokens, labels = data.synthetic_batch(WORKLOAD.preset("paper"), 2, np.random.default_rng(1))
    assert 49_000 < tokens.max() < 50_257
    np.testing.assert_array_equal(tokens[:, 1:], labels[:, :-1])
    with pytest.raises(UsageError, match=r"^[^\n]*whose 50,257 tokens are no bytes; leave --data out[^\n]*$"):
        WORKLOAD.input("paper", data.TEXT)


def test_no_token_sees_a_later_one():
    torch.manual_seed(1)
    network = Gpt(NETWORKS["tiny"])
    tokens = torch.randint(256, (1, 128))
    changed = tokens.clone()
    changed[0, 64] = (changed[0, 64] + 1) % 256
    with torch.no_grad():
        differing = (network(tokens) != network(changed)).any(dim=2)[0]
    assert not differing[:64].any()
    assert differing[64:].all()


def test_first_weights_are_the_published_ones():
    make = WORKLOAD.factory(framework="torch", preset="small", local_batch=1, source=Input())
    replica = make(shard=Shard(), seed=1)
    stds = {name: weight.std() for name, weight in zip(replica.names(), replica.weights(), strict=True)}
    residual = 0.02 / np.sqrt(2 * 4)
    assert stds["embedding.weight"] == pytest.approx(0.02, rel=0.02)
    assert stds["positions.weight"] == pytest.approx(0.01, rel=0.02)
    assert stds["blocks.3.attention.inputs.weight"] == pytest.approx(0.02, rel=0.02)
    assert stds["blocks.3.attention.projection.weight"] == pytest.approx(residual, rel=0.02)
    assert stds["blocks.0.mlp.projection.weight"] == pytest.approx(residual, rel=0.02)


def test_bits_per_byte():
    labels = np.arange(6).reshape(2, 3)
    logits = np.zeros((2, 3, 256), np.float32)
    assert quality.metrics({"bits": quality.bits_per_byte(logits, labels)}) == {
        "bits_per_byte": pytest.approx(8)
    }
    np.put_along_axis(logits[1:], labels[1:, :, None], np.float32(1000), axis=2)  # exp would overflow
    np.testing.assert_allclose(quality.bits_per_byte(logits, labels), [8, 0], atol=1e-9)
    logits[0, 0, 0] = np.inf
    assert quality.metrics({"bits": quality.bits_per_byte(logits, labels)}) == {}
    with pytest.raises(ValueError, match="labels must be whole numbers from 0 to 255"):
        quality.bits_per_byte(logits, labels + 256)
