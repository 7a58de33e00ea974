"""How an input stands in a cell: its name and a digest, so that other data is another cell."""

from __future__ import annotations

import hashlib
from pathlib import Path

WHOLE_BYTES = 256 << 20  # larger files are known by their size and their ends: 50 GB take minutes to read
END_BYTES = 1 << 20


def data_name(path: Path) -> str:
    """`<name>:<12 hex digits>` of a file's content, or of a folder's file names and sizes."""
    digest = hashlib.sha256()
    if path.is_dir():
        for file in sorted(file for file in path.rglob("*") if file.is_file()):
            digest.update(f"{file.relative_to(path)}\0{file.stat().st_size}\n".encode())
    else:
        _update(digest, path)
    return f"{path.name}:{digest.hexdigest()[:12]}"


def _update(digest: hashlib._Hash, path: Path) -> None:
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= WHOLE_BYTES:
            digest.update(file.read())
            return
        digest.update(f"{size}\0".encode() + file.read(END_BYTES))
        file.seek(-END_BYTES, 2)
        digest.update(file.read())
