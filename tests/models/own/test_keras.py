"""A user's own Keras model as a workload, under TensorFlow."""

import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.rank.own_trial import checked
from dlscale.models.own.facts import read_facts
from dlscale.models.own.file import load_file
from dlscale.models.own.model import FilePlace
from dlscale.models.workload import Shard

from .conftest import factory

tf = pytest.importorskip("tensorflow")

KERAS = """
import keras
import numpy as np
import tensorflow as tf

def model():
    return keras.Sequential([
        keras.Input((6,)),
        keras.layers.Dense(8, activation="relu"),
        keras.layers.BatchNormalization(),
        keras.layers.Dropout(0.5),
        keras.layers.Dense(2),
    ])

loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

def optimizer():
    return keras.optimizers.Adam(2e-3)

def data():
    features = np.random.default_rng(0).normal(size=(200, 6)).astype(np.float32)
    return tf.data.Dataset.from_tensor_slices((features, (features[:, 0] > 0).astype(int)))
"""


@pytest.fixture(autouse=True)
def _policy_of_a_new_process():
    import keras

    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")


def test_settings_of_the_home_folder_do_not_count(write_file):
    import keras

    keras.config.set_image_data_format("channels_first")
    keras.config.set_floatx("float64")
    load_file(FilePlace(path := write_file(text=KERAS + "# first\n"), path))
    assert (keras.config.image_data_format(), keras.config.floatx()) == ("channels_last", "float32")


def test_facts_and_first_weights_are_those_of_the_file(write_file):
    path = write_file(text=KERAS)
    facts, make = read_facts(path), factory(path)
    assert (facts.framework, facts.optimizer, facts.learning_rate) == ("tensorflow", "Adam", 2e-3)
    assert facts.num_parameters == 6 * 8 + 8 + 2 * 8 + 8 * 2 + 2
    assert facts.forward_flops_per_sample == 2 * (6 * 8 + 8 * 2)
    assert (facts.num_samples, facts.num_classes, facts.random, facts.running_statistics) == (
        200,
        2,
        True,
        True,
    )
    one, same, other = (make(shard=Shard(), seed=seed).weights() for seed in (3, 3, 4))
    for left, right in zip(one, same, strict=True):
        np.testing.assert_array_equal(left, right)
    assert np.any(one[0] != other[0])


def test_a_state_goes_on_where_it_was_with_optimizer_dropout_and_statistics(write_file):
    make = factory(write_file(text=KERAS), learning_rate=0.25)
    one, other = make(shard=Shard(), seed=3), make(shard=Shard(), seed=3)
    other.gradients()  # draws, and moves statistics
    one.make_slots()
    other.make_slots()
    assert float(one.objectives[0].optimizer.rate) == 0.25
    for _ in range(3):
        one.apply(one.gradients())
    other.restore(one.state())
    one.set_learning_rate(0.125)
    other.set_learning_rate(0.125)
    for replica in (one, other):
        replica.apply(replica.gradients())
    assert one.losses() == other.losses()
    for name, value in one.state().items():
        np.testing.assert_array_equal(other.state()[name], value)
    samples = np.ones((2, 6), np.float32)
    np.testing.assert_array_equal(one.predict(samples), other.predict(samples))


@pytest.mark.slow
def test_an_embedding_and_bfloat16(write_file):
    """Gradients of an embedding's rows become whole tensors; with bf16 Keras's own policy computes."""
    text = KERAS.replace(
        "keras.Input((6,)),", "keras.Input((6,)), keras.layers.Embedding(3, 4), keras.layers.Flatten(),"
    )
    text = text.replace("features = np.random", "features = 0 * np.random")
    make = factory(write_file(text=text), precision="bf16")
    replica = make(shard=Shard(), seed=3)
    gradients = replica.gradients()
    assert gradients[0].shape == (3, 4)
    assert {gradient.dtype for gradient in gradients} == {np.dtype(np.float32)}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "return keras.Sequential([",
            "return len([",
            "model() returned a int; return a torch.nn.Module or a keras.Model",
        ),
        (
            "keras.optimizers.Adam(2e-3)",
            "2e-3",
            "optimizer() returned a float; return one of keras.optimizers",
        ),
        (
            "from_logits=True",
            "from_logits=True, reduction='sum'",
            "it is a sum over them, and ranks average theirs",
        ),
        (
            "keras.layers.Dropout(0.5)",
            "keras.layers.Lambda(lambda x: x + tf.random.normal(()))",
            "neither by tf.random",
        ),
        ("BatchNormalization()", "BatchNormalization(synchronized=True)", "averages over ranks by itself"),
        (
            "Adam(2e-3)",
            "Adam(keras.optimizers.schedules.CosineDecay(1.0, 9))",
            "write schedule(step), which returns",
        ),
        ("Adam(2e-3)", "Adam(2e-3, loss_scale_factor=8.0)", "divides gradients by a scale of the loss"),
        (
            "import keras\n",
            "import keras\nkeras.config.set_dtype_policy('float64')\n",
            "Keras's policy is float64",
        ),
        ("(int)))", "(int))).batch(20)", "which gives batches; return single samples"),
        (
            "\ndef model():\n    return keras.Sequential(",
            "\nclass Own(keras.Sequential):\n    train_step = None\n\ndef model():\n    return Own(",
            "Own has a train_step of its own, which is not called here",
        ),
        ("keras.Input((6,))", "keras.Input((5,))", "the network on a batch of data() raised ValueError"),
        ("size=(200, 6)", "size=(0, 6)", "data() has no samples"),
    ],
)
def test_a_mistake_is_one_line(write_file, old, new, said):
    with pytest.raises(UsageError) as caught:
        read_facts(write_file((old, new), text=KERAS))
    assert said in str(caught.value)
    assert str(caught.value).startswith("mine.py")


def test_keras_metrics_are_called_in_their_own_order_each_time_anew(write_file):
    text = KERAS.replace(
        "\nloss =", "\nmetrics = {'auc': keras.metrics.AUC(), 'hits': keras.metrics.binary_accuracy}\nloss ="
    )
    metrics = load_file(FilePlace(path := write_file(text=text), path.absolute())).metrics
    labels = np.array([0.0, 0.0, 1.0, 1.0])
    for outputs, auc, hits in ((labels * 0.6 + 0.2, 1.0, 1.0), (0.8 - labels * 0.6, 0.0, 0.0)):
        assert metrics["auc"](outputs, labels) == pytest.approx(auc)
        assert metrics["hits"](outputs, labels) == hits


def test_a_file_is_tried_with_schedule_and_clipping(write_file):
    text = KERAS.replace(
        "\nloss =", "\nclip_norm = 0.01\ndef schedule(step):\n    return 0.5**step\n\nloss ="
    )
    path = write_file(text=text)
    checked(path)
    replica = factory(path)(shard=Shard(), seed=1)
    for rate in (2e-3, 1e-3, 5e-4):
        gradients = replica.gradients()
        assert float(replica.objectives[0].optimizer.rate) == pytest.approx(rate)
        replica.apply(gradients)
    assert replica.learning_rate() == pytest.approx(2e-3)
    assert replica.objectives[0].optimizer.optimizer.global_clipnorm == 0.01
