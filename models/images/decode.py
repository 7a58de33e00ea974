"""From an encoded image to the array that the networks see: float32 (H, W, C), RGB, normalised per channel.

Normalised by mean and standard deviation of ImageNet's pixels, so that every channel has mean 0 and variance 1 on
it; both workloads alike and both frameworks alike, for the sake of comparison. Source: torchvision's documentation
of its models (docs.pytorch.org/docs/0.2.0/torchvision/models.html), which ask for it, ResNet-50 and Inception v3
among them.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dlscale.models.images.store import Encoded, bad_sample, reason

if TYPE_CHECKING:
    from PIL.Image import Image


MEAN = (0.485, 0.456, 0.406)  # of R, G, B in 0 .. 1
STANDARD_DEVIATION = (0.229, 0.224, 0.225)

# Of random crops: their area relative to the image, and width over height. Szegedy et al., arXiv:1409.4842, section 6.
CROP_AREAS = (0.08, 1.0)
CROP_ASPECTS = (3 / 4, 4 / 3)
_CROP_TRIES = 10  # then the whole image's central square
CENTRAL_PART = 0.875  # of the shorter side is seen in evaluation: 224 of 256, 299 of 342

_FORMATS = ("JPEG", "PNG")
_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr")  # others have more than 8 bits

Box = tuple[float, float, float, float]  # left, top, right, bottom [pixels]


def training_image(
    encoded: Encoded, rng: np.random.Generator, *, height: int, width: int
) -> NDArray[np.float32]:
    """A random crop of a random size, half of the time mirrored: (height, width, 3).

    Area and aspect ratio of the crop are drawn as for GoogLeNet (arXiv:1409.4842), resized bilinearly.
    Raises BadSample if the image is damaged.
    """
    with _opened(encoded) as image:
        box = _random_box(rng, image.width, image.height)
        pixels = _pixels(image, box, (width, height))
    return _normalised(pixels[:, ::-1] if rng.random() < 0.5 else pixels)


def evaluation_image(encoded: Encoded, *, height: int, width: int) -> NDArray[np.float32]:
    """The central part of the image, (height, width, 3). Raises BadSample if the image is damaged.

    As if the image were resized, keeping its aspect ratio, until the central part of it just has this size.
    """
    with _opened(encoded) as image:
        scale = min(image.width / width, image.height / height) * CENTRAL_PART
        pixels = _pixels(image, _central_box(image, scale * width, scale * height), (width, height))
    return _normalised(pixels)


@contextmanager
def _opened(encoded: Encoded) -> Iterator[Image]:
    """The image; whatever fails in the block is told as a bad sample. Raises BadSample."""
    from PIL import Image

    try:
        if isinstance(encoded.data, bytes):
            with Image.open(io.BytesIO(encoded.data), formats=_FORMATS) as image:
                if image.mode not in _MODES:
                    raise ValueError(f"pixels of 8 bits are needed, the image has mode {image.mode}")
                yield image
        else:
            yield Image.fromarray(encoded.data)
    except _damages() as error:
        known = isinstance(encoded.data, bytes) and encoded.data[:3] in (b"\xff\xd8\xff", b"\x89PN")
        what = f"the image cannot be decoded ({reason(error)})" if known else "neither a JPEG nor a PNG file"
        raise bad_sample(encoded.where, what, index=encoded.index) from None


def _damages() -> tuple[type[Exception], ...]:
    """Errors that Pillow raises for damaged files, besides its own subclasses of OSError."""
    from PIL.Image import DecompressionBombError

    return (OSError, SyntaxError, ValueError, EOFError, struct.error, zlib.error, DecompressionBombError)


def _random_box(rng: np.random.Generator, width: int, height: int) -> Box:
    areas = width * height * rng.uniform(*CROP_AREAS, size=_CROP_TRIES)
    # Uniform in the logarithm, so that a ratio is as likely as its inverse.
    aspects = np.exp(rng.uniform(np.log(CROP_ASPECTS[0]), np.log(CROP_ASPECTS[1]), size=_CROP_TRIES))
    places = rng.random((_CROP_TRIES, 2))
    for area, aspect, (across, down) in zip(areas, aspects, places, strict=True):
        crop_width, crop_height = (area * aspect) ** 0.5, (area / aspect) ** 0.5
        if crop_width <= width and crop_height <= height:
            left, top = across * (width - crop_width), down * (height - crop_height)
            return (left, top, left + crop_width, top + crop_height)
    side = min(width, height)
    return ((width - side) / 2, (height - side) / 2, (width + side) / 2, (height + side) / 2)


def _central_box(image: Image, width: float, height: float) -> Box:
    left, top = (image.width - width) / 2, (image.height - height) / 2
    return (left, top, left + width, top + height)


def _pixels(image: Image, box: Box, size: tuple[int, int]) -> NDArray[np.uint8]:
    """The box of the image, RGB, resized to `size` (width, height): (H, W, C)."""
    from PIL.Image import Resampling

    left, top, right, bottom = box
    inside = (left, top, min(right, image.width), min(bottom, image.height))  # by rounding it may stick out
    if image.mode != "RGB":
        image.load()
        image.info.pop("transparency", None)  # of no use here, and Pillow warns that RGB has none
        image = image.convert("RGB")
    return np.asarray(image.resize(size, Resampling.BILINEAR, box=inside), dtype=np.uint8)


def _normalised(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    mean, deviation = np.array(MEAN, dtype=np.float32), np.array(STANDARD_DEVIATION, dtype=np.float32)
    height, width, _ = pixels.shape
    # Whole rows at once: NumPy is several times slower along an axis of three.
    scale, offset = np.tile(1 / (255 * deviation), width), np.tile(mean / deviation, width)
    rows = pixels.reshape(height, -1).astype(np.float32)
    rows *= scale
    rows -= offset
    return rows.reshape(pixels.shape)
