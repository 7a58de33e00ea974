"""Files of maps: what is refused, in which words, and that reading returns what is stored."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.models.cosmogan import FLIP_PROBABILITY, LATENT_SIZE, WORKLOAD
from dlscale.models.cosmogan.data import (
    MapFiles,
    check_input,
    default_input,
    open_map_file,
    open_samples,
    step_inputs,
    synthetic_batch,
)
from dlscale.models.samples import BadSample, LocalBatches
from dlscale.models.workload import Input, Shard

TINY = WORKLOAD.preset("tiny")  # 32x32
NUM_MAPS = 6


def random_maps(*shape, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


@pytest.fixture
def path(tmp_path):
    """A file that `check_input` accepts, every map different."""
    path = tmp_path / "maps.npy"
    np.save(path, random_maps(NUM_MAPS, 32, 32))
    return path


def open_(path, **options):
    return open_samples(Input(path=path, **options), TINY, seed=(0, 0))


def everything(samples):
    return samples.read(np.arange(len(samples)))[0]


def refusal(path, preset=TINY, *, num_samples=1, **options):
    with pytest.raises(UsageError) as refused:
        check_input(Input(path=path, **options), preset, num_samples=num_samples)
    message = str(refused.value)
    assert str(path) in message
    assert "\n" not in message
    return message


def test_synthetic_input_needs_no_file():
    check_input(Input(), TINY)
    with pytest.raises(ValueError, match="no file to open"):
        open_samples(Input(), TINY, seed=(0, 0))


def test_reading_returns_what_is_stored_in_the_order_asked(path):
    indices = np.array([3, 5, 0, 3])  # unsorted, and one twice
    (read,) = open_(path).read(indices)
    assert read.shape == (4, 32, 32, 1)
    assert open_(path).read(indices[:0])[0].shape == (0, 32, 32, 1)
    assert read.dtype == np.float32
    assert read.flags.c_contiguous
    np.testing.assert_array_equal(read[..., 0], np.load(path)[indices])
    read[:] = 0  # it is a copy, not the file
    np.testing.assert_array_equal(open_(path).read(indices)[0][..., 0], np.load(path)[indices])


@pytest.mark.parametrize("stored", ["<f4", ">f4", "<f2", ">f2"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(NUM_MAPS, 32, 32), (NUM_MAPS, 32, 32, 1)])
def test_types_orders_and_shapes(path, stored, order, shape):
    maps = np.asarray(random_maps(*shape), dtype=stored, order=order)
    np.save(path, maps)
    check_input(Input(path=path), TINY, num_samples=NUM_MAPS)
    np.testing.assert_array_equal(everything(open_(path)), maps.reshape(NUM_MAPS, 32, 32, 1))


def test_larger_maps_are_cut_into_tiles_row_by_row(path):
    maps = random_maps(2, 64, 96)
    np.save(path, maps)
    check_input(Input(path=path), TINY, num_samples=12)
    tiles = everything(open_(path))[..., 0]
    assert len(tiles) == 12
    np.testing.assert_array_equal(tiles[0], maps[0, :32, :32])
    np.testing.assert_array_equal(tiles[2], maps[0, :32, 64:])
    np.testing.assert_array_equal(tiles[3], maps[0, 32:, :32])
    np.testing.assert_array_equal(tiles[11], maps[1, 32:, 64:])
    # All pixels, and each once.
    np.testing.assert_array_equal(np.sort(tiles, axis=None), np.sort(maps, axis=None))


def test_a_folder_is_one_sequence_in_the_order_of_names(tmp_path):
    parts = {"b.npy": random_maps(3, 32, 32, seed=1), "a.npy": random_maps(2, 64, 32, seed=2)}
    for name, maps in parts.items():
        np.save(tmp_path / name, maps)
    (tmp_path / ".c.npy").write_text("being written")
    (tmp_path / "a.npy.json").write_text("{}")
    check_input(Input(path=tmp_path), TINY, num_samples=7)
    expected = np.concatenate([parts["a.npy"].reshape(4, 32, 32), parts["b.npy"]])
    np.testing.assert_array_equal(everything(open_(tmp_path))[..., 0], expected)


def test_a_bad_file_in_a_folder_is_named(tmp_path, path):
    (tmp_path / "other.npy").write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UsageError, match=r"other\.npy: its header promises"):
        check_input(Input(path=tmp_path), TINY)


def put(*shape, dtype=np.float32):
    return lambda path: np.save(path, np.zeros(shape, dtype))


def text(content):
    return lambda path: path.write_bytes(content)


def header(content):
    return text(content + b" " * 200)


HEADER = "its .npy header cannot be read"
TYPE = "must be float32 or float16, found"
REFUSED = [
    ("an empty folder", lambda path: (path.unlink(), path.mkdir()), "found none in this folder"),
    ("nowhere", lambda path: path.unlink(), "found none of that name"),
    ("empty", text(b""), "is not a .npy file"),
    ("an archive", text(b"PK\x03\x04 an archive"), "is not a .npy file"),
    ("a table", text(b"x,y\n1,2\n"), "is not a .npy file"),
    ("cut header", text(b"\x93NUMPY"), HEADER),
    ("damaged header", header(b"\x93NUMPY\x01\x00\x76\x00{'descr': (((("), HEADER),
    ("another version", header(b"\x93NUMPY\x09\x00\x10\x00{}"), HEADER),
    ("objects", lambda path: np.save(path, np.array([{"maps": 1}] * 3), allow_pickle=True), f"{TYPE} object"),
    *(
        (dtype, put(NUM_MAPS, 32, 32, dtype=dtype), f"{TYPE} {dtype}")
        for dtype in ("float64", "uint8", "complex64")
    ),
    *(
        (f"shape {shape}", put(*shape), f"with N of 1 or more, found ({', '.join(map(str, shape))})")
        for shape in [(), (32,), (32, 32), (2, 32, 32, 3), (2, 1, 32, 32), (0, 32, 32)]
    ),
]


@pytest.mark.parametrize(("harm", "told"), [pytest.param(*case, id=name) for name, *case in REFUSED])
def test_a_file_without_maps_is_refused(path, harm, told):
    harm(path)
    assert told in refusal(path)


@pytest.mark.parametrize("shape", [(2, 16, 16), (2, 48, 48), (2, 32, 40), (2, 40, 32)])
def test_maps_that_are_no_multiple_of_the_presets_size(path, shape):
    np.save(path, np.zeros(shape, np.float32))
    message = refusal(path)
    assert f"needs maps of 32x32 pixels or multiples of that, found {shape[1]}x{shape[2]}" in message
    assert "cosmology_maps.py FILE.npy --size 32" in message
    with pytest.raises(ValueError, match="are not tiles of 32x32"):
        MapFiles([open_map_file(path)], (32, 32))


def test_fewer_samples_than_the_study_needs(path):
    message = refusal(path, num_samples=NUM_MAPS + 1)
    assert f"at least {NUM_MAPS + 1} samples, one global batch of preset tiny, found {NUM_MAPS}" in message


@pytest.mark.parametrize("missing", [1, 4096, 4097, 20_000])
def test_a_file_that_is_cut_off_names_its_first_broken_map(path, missing):
    whole = path.read_bytes()
    path.write_bytes(whole[:-missing])
    message = refusal(path)
    assert f"promises {NUM_MAPS} maps, {len(whole)} bytes, and it has {len(whole) - missing}" in message
    assert f"map {NUM_MAPS - 1 - (missing - 1) // 4096} is cut off" in message
    assert "skip_bad" in message
    with pytest.raises(UsageError, match="is cut off"):
        open_(path)


def test_a_file_that_is_cut_off_gives_its_whole_maps_when_bad_ones_are_skipped(path):
    maps = np.load(path)
    path.write_bytes(path.read_bytes()[:-5000])  # more than one of 4096 bytes
    check_input(Input(path=path, skip_bad=True), TINY, num_samples=NUM_MAPS - 2)
    assert f"found {NUM_MAPS - 2}" in refusal(path, num_samples=NUM_MAPS - 1, skip_bad=True)
    samples = open_(path, skip_bad=True)
    whole = np.arange(NUM_MAPS - 2)
    np.testing.assert_array_equal(samples.read(whole)[0][..., 0], maps[whole])
    with pytest.raises(BadSample, match=rf"maps\.npy: map {NUM_MAPS - 2} of {NUM_MAPS} is cut off") as bad:
        samples.read(np.array([0, NUM_MAPS - 2]))
    assert bad.value.index == NUM_MAPS - 2


def test_skipping_does_not_help_a_file_without_a_whole_map(path):
    path.write_bytes(path.read_bytes()[:1000])
    message = refusal(path, skip_bad=True)
    assert "map 0 is cut off" in message
    assert "skip_bad" not in message


def test_a_header_that_promises_petabytes_is_refused_even_if_bad_maps_are_skipped(path):
    content = path.read_bytes()
    old = f"({NUM_MAPS}, 32, 32)".encode()
    new = f"({2**40}, 32, 32)".encode()
    content = content.replace(old + b", }" + b" " * (len(new) - len(old)), new + b", }")
    path.write_bytes(content)
    assert f"promises {2**40} maps and it has {NUM_MAPS}" in refusal(path, skip_bad=True)


def test_maps_that_are_no_file_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "maps.npy")
    assert "maps.npy: a part of the data by its name, and no file" in refusal(tmp_path)


def test_a_file_with_bytes_too_many(path):
    path.write_bytes(path.read_bytes() + b"\0")
    assert "promises" in refusal(path)
    assert "promises" in refusal(path, skip_bad=True)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_pixel_that_is_no_number_is_named_with_its_place(path, bad):
    maps = random_maps(3, 64, 64)
    maps[1, 40, 7] = bad
    np.save(path, maps)
    check_input(Input(path=path), TINY)  # reads no pixels
    samples = open_(path)
    samples.read(np.setdiff1d(np.arange(12), 6))
    with pytest.raises(BadSample, match=rf"^[^\n]*maps\.npy: map 1 has {bad} at row 40, column 7;") as found:
        samples.read(np.array([2, 6, 0]))
    assert found.value.index == 6  # the tile, third of the map's four


def test_bad_maps_are_skipped_and_counted(path):
    maps = random_maps(NUM_MAPS, 32, 32)
    maps[2, 0, 0] = np.nan
    np.save(path, maps)
    source = Input(path=path, skip_bad=True)
    batches = LocalBatches(
        WORKLOAD.data(), preset=TINY, local_batch=NUM_MAPS, source=source, shard=Shard(), seed=1
    )
    seen = np.concatenate([batch[0] for batch in islice(batches.samples(), 2)])
    assert seen.shape == (2 * NUM_MAPS, 32, 32, 1)
    assert np.isfinite(seen).all()
    assert batches.num_skipped > 0


@pytest.mark.parametrize("index", [-1, NUM_MAPS])
def test_a_sample_that_does_not_exist(path, index):
    with pytest.raises(IndexError):
        open_(path).read(np.array([index]))


def test_a_preset_that_the_shipped_maps_do_not_divide_into():
    odd = replace(TINY, name="odd", input_shape=(1, 96, 96))
    with pytest.raises(
        UsageError, match=r"cosmology_maps.py FILE\.npy --size 96 --maps N and pass it as --data FILE"
    ):
        default_input(odd)


def test_synthetic_batches_look_like_maps():
    (maps,) = synthetic_batch(TINY, 3, np.random.default_rng(0))
    assert (maps.shape, maps.dtype) == ((3, 32, 32, 1), np.float32)
    assert -1 <= maps.min() < -0.9
    assert 0.9 < maps.max() < 1


@pytest.mark.parametrize("gate", [False, True])
def test_a_step_draws_the_generators_input(gate):
    z, flip = step_inputs(TINY, 2000, np.random.default_rng(0), gate=gate)
    assert (z.shape, z.dtype) == ((2000, LATENT_SIZE), np.float32)
    assert (flip.shape, flip.dtype) == ((1,), np.float32)
    assert abs(z.mean()) < 0.02
    assert z.std() == pytest.approx(1, abs=0.02)


def test_labels_flip_rarely_and_never_at_the_gate():
    rng = np.random.default_rng(0)
    steps = 20_000
    flips = np.array([step_inputs(TINY, 1, rng, gate=False)[1][0] for _ in range(steps)])
    assert set(flips) == {0, 1}
    error = np.sqrt(FLIP_PROBABILITY / steps)
    assert abs(flips.mean() - FLIP_PROBABILITY) < 4 * error
    assert not any(step_inputs(TINY, 1, rng, gate=True)[1][0] for _ in range(1000))
