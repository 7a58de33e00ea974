"""Scikit-learn's handwritten digits as a file in CIFAR-10's format: real images that come with a Python package.

1797 grey images of 8x8 pixels with 17 levels, of ten classes: the test set of E. Alpaydin and C. Kaynak, Optical
Recognition of Handwritten Digits, UCI Machine Learning Repository (1998), https://doi.org/10.24432/C50P49, as
`sklearn.datasets.load_digits` has it. They are enlarged to the part that evaluation sees of 32x32 pixels
(`decode.CENTRAL_PART`), with a black frame around it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dlscale.base.errors import UsageError
from dlscale.base.files import write_atomically
from dlscale.models.images.decode import CENTRAL_PART

SIDE = 32  # pixels of CIFAR-10's images
_LEVELS = 16  # the brightest


def write_digits(target: Path, *, overwrite: bool = False) -> int:
    """Writes all digits to the file `target` (*.bin); returns their number.

    Raises UsageError if it exists (unless `overwrite`), has another suffix or cannot be written, or if a package is
    missing.
    """
    if target.suffix != ".bin":
        raise UsageError(f"{target}: a file in CIFAR-10's format has the suffix .bin; choose such a name")
    if target.exists() and not overwrite:
        raise UsageError(f"{target} exists; choose another --out, or replace it with --overwrite")
    try:
        from PIL import Image
        from sklearn.datasets import load_digits
    except ModuleNotFoundError as error:
        raise UsageError(
            f"the digits need the package {error.name}; pip install 'dlscale[images,science]'"
        ) from None
    digits = load_digits()
    inner = round(CENTRAL_PART * SIDE)
    frame = (SIDE - inner) // 2
    records = bytearray()
    for image, label in zip(digits.images, digits.target, strict=True):
        pixels = Image.fromarray(np.round(image * (255 / _LEVELS)).astype(np.uint8))
        enlarged = np.pad(np.asarray(pixels.resize((inner, inner), Image.Resampling.BICUBIC)), frame)
        records += bytes([int(label)]) + enlarged.tobytes() * 3
    write_atomically(target, bytes(records), mode=0o644, remedy="choose another --out")
    return len(digits.target)
