"""Keras 3 over the ring: `fit` trains as one rank does, and what would go wrong on several ranks is said at once."""

import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.collectives import ring
from dlscale.collectives.buffers import BuffersDifferError, check_buffers_match

pytestmark = pytest.mark.on_ranks(2)

LOCAL_BATCH = 4
NUM_STEPS = 6


@pytest.fixture(scope="module")
def ranks(world):
    joined = ring.join(world)
    yield joined
    joined.close()


def make_model(seed=1, *, dropout=False):
    keras.utils.set_random_seed(seed)
    layers = [keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(1)]
    if dropout:
        layers.insert(1, keras.layers.Dropout(0.5))
    return keras.Sequential([keras.Input((5,)), *layers])


def samples(size):
    """Of all ranks: NUM_STEPS global batches, in which rank r has the r-th part of each."""
    x = np.random.default_rng(3).standard_normal((NUM_STEPS, size, LOCAL_BATCH, 5)).astype(np.float32)
    return x, x.sum(axis=-1, keepdims=True) ** 2


def own_samples(world):
    x, y = (part[:, world.Get_rank()] for part in samples(world.Get_size()))
    return x.reshape(-1, 5), y.reshape(-1, 1)


def fit(model, x, y, *, batch_size=LOCAL_BATCH, **options):
    return model.fit(x, y, batch_size=batch_size, shuffle=False, verbose=0, **options)


def weights(model):
    return [np.asarray(variable) for variable in model.trainable_variables]


OPTIMIZERS = {
    "clipped": lambda: keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=0.5, weight_decay=0.01),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(
        keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(0.05, 3, 0.5))
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_ranks_with_a_part_train_as_one_rank_with_all(ranks, world, name):
    """The means of losses over parts of equal size have the gradient of the mean over all: also clipping sees that."""
    alone = make_model()
    alone.compile(optimizer=OPTIMIZERS[name](), loss="mse")
    x, y = samples(world.Get_size())
    fit(alone, x.reshape(-1, 5), y.reshape(-1, 1), batch_size=LOCAL_BATCH * world.Get_size(), epochs=2)
    model = make_model(seed=5 + world.Get_rank())
    start = make_model()
    if world.Get_rank() == 0:
        model.set_weights(start.get_weights())
    model.compile(optimizer=ring.keras_optimizer(OPTIMIZERS[name](), ranks), loss="mse")
    fit(model, *own_samples(world), epochs=2, callbacks=ring.keras_callbacks(ranks))
    check_buffers_match(ranks, weights(model))
    for found, expected, first in zip(weights(model), weights(alone), weights(start), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        assert np.abs(found - first).max() > 1e-2


def test_training_begins_with_rank_0(ranks, world):
    """Weights, slots, the number of steps and running statistics; each rank keeps its random states."""
    rank = world.Get_rank()
    model = make_model(seed=rank, dropout=True)
    model.add(keras.layers.BatchNormalization())
    model.compile(optimizer=ring.keras_optimizer("adam", ranks), loss="mse")
    model.optimizer.build(model.trainable_variables)
    everything = [*model.variables, *model.optimizer.variables]
    for variable in everything:
        variable.assign(np.full(variable.shape, rank + 1, dtype=variable.dtype))
    assert {variable.dtype for variable in everything} == {"float32", "int64"}
    fit(model, *own_samples(world), epochs=0, callbacks=ring.keras_callbacks(ranks))
    assert any("seed_generator_state" in variable.path for variable in everything)
    for variable in everything:
        expected = rank + 1 if "seed_generator_state" in variable.path else 1
        assert np.unique(np.asarray(variable)).tolist() == [expected], variable.path


def test_metrics_are_means_over_ranks(ranks, world):
    seen = []

    class Note(keras.callbacks.Callback):
        def on_epoch_end(self, _, logs=None):
            seen.append(dict(logs))

    model = make_model()
    model.compile(
        optimizer=ring.keras_optimizer(keras.optimizers.SGD(0.0), ranks), loss="mse", metrics=["mae"]
    )
    x, y = own_samples(world)
    own = model.evaluate(x, y, batch_size=LOCAL_BATCH, verbose=0, return_dict=True)
    history = fit(model, x, y, validation_data=(x, y), callbacks=[*ring.keras_callbacks(ranks), Note()])
    means = {name: world.allreduce(value) / world.Get_size() for name, value in own.items()}
    for name, value in means.items():
        assert history.history[name][0] == pytest.approx(value, rel=1e-5)
        assert seen[0][f"val_{name}"] == pytest.approx(value, rel=1e-5)
    assert len(set(world.allgather(str(history.history)))) == 1


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras, while it saves
def test_a_saved_model_needs_nothing_of_ours(ranks, world, tmp_path):
    path = world.bcast(str(tmp_path / "model.keras"))
    model = make_model()
    model.compile(
        optimizer=ring.keras_optimizer(keras.optimizers.Adam(0.02, clipnorm=3.0), ranks), loss="mse"
    )
    fit(model, *own_samples(world), callbacks=ring.keras_callbacks(ranks))
    if world.Get_rank() == 0:
        model.save(path)
    world.Barrier()
    loaded = keras.models.load_model(path)
    assert type(loaded.optimizer) is keras.optimizers.Adam
    assert loaded.optimizer.get_config() == model.optimizer.get_config()
    again = keras.optimizers.Adam.from_config(model.optimizer.get_config())
    assert again.get_config()["clipnorm"] == 3.0
    slots = [np.asarray(variable) for variable in loaded.optimizer.variables]
    loaded.compile(optimizer=ring.keras_optimizer(loaded.optimizer, ranks), loss="mse")
    assert all(
        np.array_equal(a, b) for a, b in zip(slots, map(np.asarray, loaded.optimizer.variables), strict=True)
    )
    for net in (model, loaded):  # goes on as if nothing had happened
        fit(net, *own_samples(world), callbacks=ring.keras_callbacks(ranks))
    assert int(loaded.optimizer.iterations) == 2 * NUM_STEPS
    for a, b in zip(weights(model), weights(loaded), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_an_overflow_on_one_rank_is_one_on_all(ranks, world):
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1.0), initial_scale=8.0)
    model = make_model()
    model.compile(optimizer=ring.keras_optimizer(optimizer, ranks), loss="mse")
    x, y = own_samples(world)
    if world.Get_rank() == world.Get_size() - 1:
        y[: 2 * LOCAL_BATCH] = np.inf
    before = weights(model)
    fit(model, x[: 2 * LOCAL_BATCH], y[: 2 * LOCAL_BATCH], callbacks=ring.keras_callbacks(ranks))
    scales = world.allgather(float(optimizer.dynamic_scale))
    assert scales == [2.0] * world.Get_size()
    for old, new in zip(before, weights(model), strict=True):
        np.testing.assert_array_equal(old, new)


class Alone(keras.Sequential):
    """A model with a step of its own, that averages nothing."""

    def train_step(self, data):
        return super().train_step(data)


def test_ranks_that_drift_apart_are_found(ranks, world):
    model = Alone(make_model().layers)
    model.build((None, 5))
    model.compile(optimizer="sgd", loss="mse")
    with pytest.raises(BuffersDifferError, match=r"dense.*/kernel is not on all ranks what it is on rank 0"):
        fit(model, *own_samples(world), callbacks=ring.keras_callbacks(ranks))


def inside(ranks):
    return keras.optimizers.LossScaleOptimizer(ring.keras_optimizer("sgd", ranks))


# What is compiled, with `rows` and further `layers` of a rank; what is said.
REFUSED = {
    "alone": (lambda _, __: {"optimizer": "adam"}, "every rank would train alone: the model's Adam"),
    "scaled": (lambda ranks, _: {"optimizer": inside(ranks)}, "outside of a LossScaleOptimizer"),
    "xla": (lambda *_: {"jit_compile": True}, "jit_compile=True"),
    "steps": (lambda _, rank: {"rows": LOCAL_BATCH * (2 if rank else 1)}, "different numbers of steps"),
    "models": (lambda _, rank: {"layers": rank}, "ranks built different models"),
    "metrics": (lambda _, rank: {"metrics": [["mae"], []][rank]}, "ranks have different metrics"),
}


@pytest.mark.parametrize(("given", "text"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(ranks, world, given, text):
    compiled = {
        "optimizer": ring.keras_optimizer("sgd", ranks),
        "loss": "mse",
        **given(ranks, world.Get_rank()),
    }
    rows, model = compiled.pop("rows", None), make_model()
    for _ in range(compiled.pop("layers", 0)):
        model.add(keras.layers.Dense(1))
    model.compile(**compiled)
    x, y = own_samples(world)
    with pytest.raises(UsageError, match=text):
        fit(model, x[:rows], y[:rows], callbacks=ring.keras_callbacks(ranks))


def test_an_optimizer_is_wrapped_once(ranks):
    with pytest.raises(UsageError, match="wrap it once"):
        ring.keras_optimizer(inside(ranks), ranks)


def test_half_precision_needs_the_scaling_one(ranks):
    keras.config.set_dtype_policy("mixed_float16")
    try:
        with pytest.raises(UsageError, match="LossScaleOptimizer"):
            ring.keras_optimizer("sgd", ranks)
    finally:
        keras.config.set_dtype_policy("float32")
