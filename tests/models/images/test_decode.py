"""What the networks see of an image, and that a damaged one is named."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from dlscale.models.images.decode import (
    CROP_AREAS,
    CROP_ASPECTS,
    MEAN,
    STANDARD_DEVIATION,
    _random_box,
    evaluation_image,
    training_image,
)
from dlscale.models.images.store import Encoded
from dlscale.models.samples import BadSample

from .conftest import encode, pixels

SIZE = {"height": 24, "width": 32}


def of(data):
    return Encoded(index=7, data=data, label=0, where="train/ant_0.JPEG")


def rng(seed=0):
    return np.random.default_rng(seed)


def levels(image):
    """Back to 0 .. 255."""
    return (image * STANDARD_DEVIATION + MEAN) * 255


def refusals(data):
    """What both ways to look at an image say of it."""
    messages = []
    for look in (
        lambda sample: training_image(sample, rng(), **SIZE),
        lambda sample: evaluation_image(sample, **SIZE),
    ):
        with pytest.raises(BadSample) as refused:
            look(of(data))
        assert refused.value.index == 7
        assert "\n" not in str(refused.value)
        messages.append(str(refused.value))
    return messages


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "pixels"])
def test_images_are_normalised_per_channel(kind):
    colour = np.full((40, 50, 3), (200, 100, 30), dtype=np.uint8)
    sample = of(colour if kind == "pixels" else encode(colour, kind))
    expected = (np.array([200, 100, 30]) / 255 - MEAN) / STANDARD_DEVIATION
    for image in (training_image(sample, rng(), **SIZE), evaluation_image(sample, **SIZE)):
        assert image.shape == (24, 32, 3)
        assert image.dtype == np.float32
        np.testing.assert_allclose(image, np.broadcast_to(expected, image.shape), atol=0.03)


@pytest.mark.parametrize(
    ("pixels_shape", "size", "part"),
    [
        ((256, 256), (224, 224), (slice(16, 240), slice(16, 240))),
        ((256, 512), (224, 224), (slice(16, 240), slice(144, 368))),
        ((512, 256), (224, 224), (slice(144, 368), slice(16, 240))),
        ((64, 64), (28, 56), (slice(18, 46), slice(4, 60))),
    ],
)
def test_evaluation_sees_the_central_seven_eighths(pixels_shape, size, part):
    pixels = rng().integers(0, 256, size=(*pixels_shape, 3), dtype=np.uint8)
    image = evaluation_image(of(pixels), height=size[0], width=size[1])
    np.testing.assert_allclose(levels(image), pixels[part], atol=1e-3)


def test_evaluation_resizes_what_is_larger():
    small = pixels(3, height=64, width=64)
    large = np.array(Image.fromarray(small).resize((256, 256), Image.Resampling.BICUBIC))
    # Of both the same part, so the larger one is seen at a quarter of its size.
    one, other = (evaluation_image(of(pixels), height=56, width=56) for pixels in (small, large))
    np.testing.assert_allclose(levels(one), levels(other), atol=8)


def test_training_images_depend_on_the_seed_alone():
    sample = of(encode(pixels(0)))
    one, again, other = (training_image(sample, rng(seed), **SIZE) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)


def test_half_of_the_training_images_are_mirrored():
    ramp = np.broadcast_to(np.arange(0, 200, 4, dtype=np.uint8)[None, :, None], (40, 50, 3)).copy()
    generator = rng(5)
    rising = [np.diff(training_image(of(ramp), generator, **SIZE)[12, :, 0]).mean() > 0 for _ in range(200)]
    assert 70 < sum(rising) < 130


def test_crops_have_the_areas_and_aspects_of_the_publication():
    generator = rng(3)
    boxes = np.array([_random_box(generator, 500, 375) for _ in range(4000)])
    widths, heights = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    areas, aspects = widths * heights / (500 * 375), widths / heights
    assert boxes.min() >= 0
    assert boxes[:, 2].max() <= 500 + 1e-9
    assert boxes[:, 3].max() <= 375 + 1e-9
    assert CROP_AREAS[0] <= areas.min() < 0.1
    assert 0.9 < areas.max() <= CROP_AREAS[1] + 1e-9
    assert CROP_ASPECTS[0] - 1e-9 <= aspects.min() < 0.76
    assert 1.31 < aspects.max() <= CROP_ASPECTS[1] + 1e-9
    small = areas < 0.5  # these fit, whatever their aspect: uniform, and so are places
    assert np.mean(areas[small]) == pytest.approx(np.mean([CROP_AREAS[0], 0.5]), rel=0.02)
    assert np.mean(np.log(aspects[small])) == pytest.approx(0, abs=0.02)
    assert np.mean(boxes[small, 0] / (500 - widths[small])) == pytest.approx(0.5, abs=0.03)
    assert np.mean(boxes[small, 1] / (375 - heights[small])) == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("shape", [(1, 1000), (1000, 1), (1, 1)])
def test_images_in_which_no_crop_fits_give_their_central_square(shape):
    pixels = np.zeros((*shape, 3), dtype=np.uint8)
    pixels[shape[0] // 2, shape[1] // 2] = 255
    image = training_image(of(pixels), rng(), **SIZE)
    assert image.shape == (24, 32, 3)
    assert np.isfinite(image).all()
    assert evaluation_image(of(pixels), **SIZE).shape == (24, 32, 3)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK"])
def test_other_images_of_8_bits_become_rgb(mode):
    file = io.BytesIO()
    image = Image.fromarray(pixels(1)).convert(mode)
    rgb = np.array(image.convert("RGB"))
    if mode == "P":
        image.info["transparency"] = bytes(range(256))
    image.save(file, "JPEG" if mode == "CMYK" else "PNG")
    seen = evaluation_image(of(file.getvalue()), **SIZE)
    expected = evaluation_image(of(rgb), **SIZE)
    np.testing.assert_allclose(levels(seen), levels(expected), atol=12 if mode == "CMYK" else 0.01)


def test_images_of_16_bits_are_refused():
    file = io.BytesIO()
    Image.fromarray(np.zeros((20, 20), dtype=np.uint16)).save(file, "PNG")
    for message in refusals(file.getvalue()):
        assert "train/ant_0.JPEG: the image cannot be decoded (pixels of 8 bits are needed" in message


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("kept", [0.2, 0.5, 0.9])
def test_cut_images_are_named(kind, kept):
    data = encode(pixels(2, height=200, width=200), kind)
    for message in refusals(data[: int(kept * len(data))]):
        assert message.startswith("train/ant_0.JPEG: the image cannot be decoded (")
        assert message.endswith("leave bad samples out (skip_bad)")


def test_a_damaged_png_is_named():
    data = bytearray(encode(pixels(2, height=200, width=200), "PNG"))
    data[len(data) // 2] ^= 0xFF
    for message in refusals(bytes(data)):
        assert "the image cannot be decoded (" in message


@pytest.mark.parametrize("data", [b"", b"\xff\xd8\xff", b"GIF89a" + bytes(100), b"some text"])
def test_what_is_no_image_is_named(data):
    for message in refusals(data):
        assert "train/ant_0.JPEG: " in message
        assert (
            "cannot be decoded" if data.startswith(b"\xff\xd8\xff") else "neither a JPEG nor a PNG file"
        ) in message


def test_a_gif_is_refused_even_if_pillow_could_read_it():
    for message in refusals(encode(pixels(0), "GIF")):
        assert "neither a JPEG nor a PNG file" in message


def test_an_image_that_would_fill_the_memory_is_refused(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    for message in refusals(encode(pixels(0))):
        assert "decompression bomb" in message
