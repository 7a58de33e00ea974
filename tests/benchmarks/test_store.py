import json
from pathlib import Path

import pytest

from dlscale.benchmarks import environment
from dlscale.benchmarks.store import Store
from dlscale.models.errors import UsageError
from dlscale.models.files import write_atomically


@pytest.fixture
def store(tmp_path):
    opened = Store(tmp_path / "results" / "study")
    opened.open({"launches": []})
    return opened


def test_files_are_private_and_whole(tmp_path):
    path = tmp_path / "x.json"
    write_atomically(path, "one")
    write_atomically(path, b"two")
    assert path.read_text() == "two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


def test_what_cannot_be_written_is_told_and_leaves_nothing(tmp_path):
    with pytest.raises(UsageError, match="cannot write"):
        write_atomically(tmp_path / "no folder" / "x.json", "one")
    assert list(tmp_path.iterdir()) == []


def test_only_one_holds_the_lock(store):
    with store.lock(), pytest.raises(UsageError, match="another dlscale"), store.lock():
        pass
    with store.lock():
        pass


def test_an_unreadable_plan_is_told(store):
    (store.folder / "study.json").write_text("{")
    with pytest.raises(UsageError, match=r"study\.json"):
        store.planned()


def test_study_json_is_written_once(store):
    store.open({"launches": ["other"]})
    assert json.loads((store.folder / "study.json").read_text()) == {"launches": []}


def test_secrets_and_homes_stay_out(monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: Path("/home/jane"))
    assert environment.redact("/home/jane/data.h5 of jane") == "~/data.h5 of <user>"
    kept = environment.recorded_variables(
        {"OMP_NUM_THREADS": "2", "AWS_SECRET": "x", "UCX_TLS": "/home/jane/lib", "HOME": "/home/jane"}
    )
    assert kept == {"OMP_NUM_THREADS": "2", "UCX_TLS": "~/lib"}
