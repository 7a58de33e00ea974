"""Installing the peers, each into an environment of its own. Needs the network; running does not."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence

from pydantic import ValidationError

from dlscale.base.definitions import Frozen
from dlscale.base.errors import UsageError
from dlscale.base.files import make_folder, write_atomically
from dlscale.base.redaction import redact
from dlscale.benchmarks.horovod_build import RECIPE as HOROVOD_RECIPE
from dlscale.benchmarks.horovod_build import build_horovod, pins
from dlscale.benchmarks.message_sizes.peers import Peer, Place, checkout, compile_program, peer_variables
from dlscale.benchmarks.systems.system import Installation

PIP_SECONDS = 1800


class Note(Frozen):
    """What setting up an environment ended with; `failure` says why it cannot be used."""

    recipe: str  # digest of what was asked for
    versions: dict[str, str] = {}
    failure: str | None = None


def read_note(place: Place) -> Note | None:
    """The note beside an environment; None if nobody set it up."""
    try:
        return Note.model_validate_json(place.note.read_bytes())
    except (OSError, ValidationError):
        return None


def unusable(peer: Peer, place: Place) -> str | None:
    """Why a peer cannot be measured; None if it can."""
    note = read_note(place)
    if note is None:
        return "not set up; make collectives-setup installs it"
    if note.failure:
        return f"could not be installed: {note.failure}"
    if not place.python.exists():
        return f"its environment {redact(str(place.folder))} is gone; run make collectives-setup"
    if note.recipe != _recipe(peer):
        return "set up for another version of this benchmark; run make collectives-setup"
    return None


def set_up(peer: Peer, place: Place, *, tell: Callable[[str], None]) -> Note:
    """The peer's environment, made or already there; a failure is noted, not raised.

    `tell` hears a line before each step.
    """
    note = read_note(place)
    if unusable(peer, place) is None and note:
        tell(f"{peer.name}: there already ({_versions_text(note.versions)})")
    else:
        note = _install(peer, place, tell)
    if peer.kind == "mpi" and not note.failure:
        tell(f"{peer.name}: compiling the benchmark with its mpicxx")
        try:
            compile_program(peer, place)
        except UsageError as error:
            note = note.model_copy(update={"failure": str(error)})
            write_atomically(place.note, note.model_dump_json())
    tell(f"{peer.name}: {f'could not be had: {note.failure}' if note.failure else 'ready'}")
    return note


def _install(peer: Peer, place: Place, tell: Callable[[str], None]) -> Note:
    make_folder(place.folder.parent)
    note = Note(recipe=_recipe(peer))
    try:
        tell(f"{peer.name}: an environment of its own")
        venv.create(place.folder, with_pip=True, clear=True)
        tell(f"{peer.name}: {', '.join(peer.packages)}")
        pip(place, ["install", *peer.packages], {})
        if peer.build == "horovod":
            build_horovod(_target(peer, place), tell=lambda text: tell(f"{peer.name}: {text}"))
        note = note.model_copy(update={"versions": _versions(place, peer)})
    except (UsageError, OSError, subprocess.SubprocessError) as error:
        note = note.model_copy(update={"failure": " ".join(redact(str(error)).split())})
    write_atomically(place.note, note.model_dump_json())
    return note


def _target(peer: Peer, place: Place) -> Installation:
    return Installation(
        name=peer.name,
        mpi="detect",
        prefix=place.folder,
        python=place.python,
        mpiexec=place.mpiexec,
        variables=peer_variables(peer, place),
    )


def pip(place: Place, words: Sequence[str], variables: dict[str, str]) -> None:
    """Run pip in an environment, with the project's constraints. Raises UsageError with pip's last error."""
    command = [str(place.python), "-m", "pip", "--quiet", "--disable-pip-version-check", *words]
    constraints = {"PIP_CONSTRAINT": str(checkout() / "constraints.txt")}
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **constraints, **variables},
        timeout=PIP_SECONDS,
    )
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["it printed nothing"]
        errors = [line for line in said if line.startswith("ERROR")] or said[-3:]
        raise UsageError(f"pip {words[0]}: {' / '.join(errors)}")


def _versions(place: Place, peer: Peer) -> dict[str, str]:
    done = subprocess.run(
        [str(place.python), "-m", "pip", "list", "--format=json", "--disable-pip-version-check"],
        capture_output=True,
        text=True,
        check=True,
        timeout=PIP_SECONDS,
    )
    wanted = {*peer.packages, *([peer.build] if peer.build else [])}
    return {row["name"]: row["version"] for row in json.loads(done.stdout) if row["name"] in wanted}


def _versions_text(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _recipe(peer: Peer) -> str:
    """Changes with what is installed: packages, their pinned versions, the way of building, the Python."""
    pinned = pins()
    text = json.dumps(
        [
            sys.version_info[:2],
            {package: pinned.get(package, "") for package in (*peer.packages, peer.build or "")},
            peer.build and HOROVOD_RECIPE,
        ]
    )
    return hashlib.sha256(text.encode()).hexdigest()[:12]
