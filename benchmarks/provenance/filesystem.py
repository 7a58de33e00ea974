"""The type of the file system that a path lies on. Neither mount points nor servers are told: they hold names."""

from __future__ import annotations

import os
import re
from pathlib import Path


def filesystem_type(path: Path, top: Path = Path("/")) -> str | None:
    """lustre, nfs4, ext4, overlay ...; None where the kernel does not say. `top` is where /proc is."""
    try:
        text = (top / "proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    wanted = os.path.realpath(path)
    best, found = -1, None
    for line in text.splitlines():
        place, _, rest = line.partition(" - ")
        words = place.split(" ")
        if len(words) < 5 or not rest:
            continue
        mount = _plain(words[4])
        inside = wanted == mount or wanted.startswith(mount.rstrip("/") + "/")
        # Of several file systems on one mount point the last one counts: it hides the others.
        if inside and len(mount) >= best:
            best, found = len(mount), rest.split(" ")[0]
    return found


def _plain(name: str) -> str:
    r"""A mount point as people write it: the kernel writes blanks as \040."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), name)
