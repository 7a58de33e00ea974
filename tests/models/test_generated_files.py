"""Generated maps and events: a file is whole or not there, and what prevents it is said in one line."""

import re
import resource
import sys

import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.models.cosmogan.maps import generate as generate_maps
from dlscale.models.hep_cnn.events import generate as generate_events

SIZE = 16
NEEDS_PYTHIA = [pytest.mark.requires("pythia8mc"), pytest.mark.nightly]


def maps(out, number=20, *, workers=1, **options):
    return generate_maps(number, out / "maps.npy", **{"size": SIZE, "num_threads": workers} | options)


def events(out, number=40, *, workers=1, **options):
    return generate_events(number, out / "events.h5", num_processes=workers, **options)


WITH_PYTHIA = [maps, pytest.param(events, marks=NEEDS_PYTHIA)]


@pytest.mark.parametrize(("make", "name"), [(maps, "maps.npy"), (events, "events.h5")])
def test_an_old_file_is_kept(tmp_path, quick_maps, make, name):
    (tmp_path / name).write_text("precious")
    with pytest.raises(
        UsageError, match=rf"^{re.escape(str(tmp_path / name))} exists; choose another --out, or [^\n]*$"
    ):
        make(tmp_path)
    assert (tmp_path / name).read_text() == "precious"


def test_maps_replace_an_old_file_when_told(tmp_path, quick_maps):
    (tmp_path / "maps.npy").write_text("old")
    maps(tmp_path, 1, overwrite=True)
    assert np.load(tmp_path / "maps.npy").shape == (1, SIZE, SIZE)
    (tmp_path / "maps.npy").unlink()
    with pytest.raises(UsageError, match=r"maps\.npy\.json exists"):
        maps(tmp_path)


def test_a_folder_is_not_overwritten_even_if_told(tmp_path):
    (tmp_path / "events.h5").mkdir()
    with pytest.raises(UsageError, match=r"exists; choose another --out"):
        events(tmp_path, overwrite=True)


@pytest.mark.parametrize("make", WITH_PYTHIA)
@pytest.mark.parametrize("folder", ["missing", "file"])
def test_an_unwritable_folder_is_one_line(tmp_path, quick_maps, make, folder):
    (tmp_path / "file").touch()
    told = rf"^cannot write {re.escape(str(tmp_path / folder))}/[^\n]*: No(t| such)[^\n]*--out[^\n]*$"
    with pytest.raises(UsageError, match=told):
        make(tmp_path / folder)


@pytest.mark.parametrize(
    ("make", "max_bytes"),
    [
        (maps, 10_000),
        pytest.param(events, 10_000, marks=NEEDS_PYTHIA, id="blocks of events"),
        pytest.param(events, 50_000, marks=NEEDS_PYTHIA, id="all events"),
    ],
)
def test_a_file_that_cannot_grow_is_one_line_and_leaves_nothing(tmp_path, quick_maps, make, max_bytes):
    """As on a full disk: a part of a write is taken, and the next one fails."""
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, unlimited[1]))
    try:
        with pytest.raises(UsageError, match=r"^cannot write [^\n]*: File too large; [^\n]*$"):
            make(tmp_path, workers=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("make", WITH_PYTHIA)
def test_an_interrupt_leaves_nothing(tmp_path, quick_maps, make):
    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(tmp_path, 1000, workers=2, progress=interrupt)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("make", "wish", "message"),
    [
        (maps, {"number": 0, "size": 256}, "0 maps of 256x256 pixels: ask for --maps 1 or more"),
        (maps, {"number": 1, "size": 4}, "1 maps of 4x4 pixels: ask for .* --size 8 to 1024"),
        (maps, {"size": 1025}, "ask for .* --size 8 to 1024"),
        (maps, {"dtype": "float64"}, "no maps of type 'float64'; choose --dtype float32 or float16"),
        (maps, {"seed": -1}, "a seed is at least 0"),
        (maps, {"workers": 0}, "threads at least 1"),
        (events, {"image_size": 128}, r"no 128x128 images; choose --size 64 or 224"),
        (events, {"number": 11}, r"11 events are too few .* at least --events 12"),
        (events, {"seed": -1}, r"seed is at least 0"),
        (events, {"workers": 0}, r"processes at least 1"),
    ],
)
def test_impossible_wishes_are_refused_before_anything_is_made(tmp_path, make, wish, message):
    with pytest.raises(UsageError, match=message):
        make(tmp_path, **wish)
    assert list(tmp_path.iterdir()) == []


def test_maps_are_in_a_file_of_numpy(tmp_path):
    with pytest.raises(UsageError, match=r"maps\.dat does not end in \.npy"):
        generate_maps(1, tmp_path / "maps.dat")


@pytest.mark.parametrize(
    ("make", "package", "message"),
    [
        (maps, "camb", r"^making convergence maps needs CAMB[^\n]*pip install camb$"),
        (events, "pythia8mc", r"pip install 'dlscale\[science\]'"),
    ],
)
def test_a_missing_package_is_named(tmp_path, monkeypatch, make, package, message):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=message):
        make(tmp_path)
    assert list(tmp_path.iterdir()) == []
