"""Labelled images for ResNet-50 and Inception v3, from the formats in which data sets are published.

    class folders   `PATH/<class>/*.jpg`: ImageNet, Flowers-102 and others; the sorted folders have the labels 0, 1, ...
    TFRecord        `PATH/train-00000-of-01024` ...: ImageNet's convention; `PATH/train` names one of several sets
    LMDB            a folder with `data.mdb`, in the layout of `lmdb_store`
    CIFAR-10        the published binary files: `data_batch_*.bin` of a folder, or one file
    Flowers-102     `imagelabels.mat`, `setid.mat` and `jpg/`, as published; `PATH/tstid` names another part

Labels are 0 .. K - 1 whatever the format counts from. Nothing in here imports a framework.
"""

from __future__ import annotations

from dlscale.models.images.opening import open_store
from dlscale.models.images.store import Encoded, ImageStore

__all__ = ["Encoded", "ImageStore", "open_store"]
