"""A training's state on disk: there whole or not at all, and refused in one line where it is damaged."""

import json
import resource
import struct

import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.rank import checkpoints

STATE = {
    "network0.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "network0.count": np.array(7, dtype=np.int64),
    "optimizer0.0.momentum_buffer": np.asfortranarray(np.ones((3, 4), np.float32)),
}


def test_what_was_saved_is_loaded(tmp_path):
    num_bytes = checkpoints.save_checkpoint(tmp_path / "case", STATE, step=40)
    assert checkpoints.last_checkpoint_step(tmp_path / "case") == 40
    found, _ = checkpoints.load_checkpoint(tmp_path / "case", step=40)
    assert sorted(found) == sorted(STATE)
    for name, value in STATE.items():
        assert found[name].dtype == value.dtype
        assert np.array_equal(found[name], value)
        assert found[name].shape == value.shape
    (path,) = (tmp_path / "case").iterdir()
    assert path.stat().st_size == num_bytes
    assert path.stat().st_mode & 0o077 == 0, "private to the user"


def test_the_last_one_is_kept(tmp_path):
    for step in (40, 80, 1200):
        checkpoints.save_checkpoint(tmp_path, STATE, step=step)
    (tmp_path / ".step-0000009999.safetensors.1.tmp").write_bytes(b"killed while it was written")
    assert checkpoints.last_checkpoint_step(tmp_path) == 1200
    assert len([path for path in tmp_path.iterdir() if not path.name.startswith(".")]) == 1


def header(content):
    text = json.dumps(content).encode()
    return struct.pack("<Q", len(text)) + text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no header at all",
        header({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}),  # and no data
        header({"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 4]}}) + b"1234",
        header({"a": {"dtype": "OBJECT", "shape": [1], "data_offsets": [0, 4]}}) + b"1234",
    ],
)
def test_a_damaged_one_is_named(tmp_path, content):
    checkpoints.save_checkpoint(tmp_path, STATE, step=40)
    (path,) = tmp_path.iterdir()
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"step-0000000040.safetensors cannot be read .*; delete it"):
        checkpoints.load_checkpoint(tmp_path, step=40)


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is not writable"):
        checkpoints.save_checkpoint(tmp_path / "file" / "case", STATE, step=1)


def test_notes_are_kept_with_the_state(tmp_path):
    notes = json.dumps({"evaluations": [0.1, 1 / 3], "text": "Größe \n"})
    checkpoints.save_checkpoint(tmp_path, STATE, step=40, notes=notes)
    state, found = checkpoints.load_checkpoint(tmp_path, step=40)
    assert (sorted(state), found) == (sorted(STATE), notes)
    checkpoints.save_checkpoint(tmp_path, STATE, step=41)
    assert checkpoints.load_checkpoint(tmp_path, step=41)[1] == ""


def test_a_disk_that_takes_no_more_keeps_the_earlier_one(tmp_path):
    checkpoints.save_checkpoint(tmp_path, STATE, step=40, notes="before")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(UsageError, match=r"cannot write .*step-0000000080.*; earlier files are kept"):
            checkpoints.save_checkpoint(tmp_path, STATE, step=80, notes="after")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert checkpoints.last_checkpoint_step(tmp_path) == 40
    assert checkpoints.load_checkpoint(tmp_path, step=40)[1] == "before"
    assert len(list(tmp_path.iterdir())) == 1, "nothing half-written is left"
