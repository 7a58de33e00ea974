"""What a build is doing, and which step it failed in, by the lines that pip, CMake and make print."""

from __future__ import annotations

import re
from typing import Literal

Step = Literal[
    "source package",
    "configure",
    "compile torch",
    "compile TensorFlow",
    "link",
    "install",
    "import check",
]
_PERCENT = re.compile(r"\[ *(\d+)%\] (Building|Linking|Built)\b(.*)")
_MAKE_FAILED = re.compile(r"\*\*\* \[[^\]]*?([^\s:\]]+)\] Error \d+")
_CONFIGURE_FAILED = re.compile(r"CMake Error|-- Configuring incomplete")
# A compiler's own words, else CMake's, else pip's: what is said first is the cause, what follows its consequences.
_REASONS = (
    re.compile(r"(?:fatal )?error: .*"),
    re.compile(r"(?<=ld: ).*(?:cannot find|undefined reference).*"),
    re.compile(r"(?<=CMake Error at ).*"),
    re.compile(r"(?<=ERROR: ).*"),
)
_NO_NETWORK = re.compile(
    r"NewConnectionError|NameResolutionError|ConnectTimeout|ProxyError|Max retries exceeded"
)
_MOST_CHARACTERS = 200


class Progress:
    """The state of a build after the lines that were read so far."""

    def __init__(self) -> None:
        self.step: Step = "source package"
        self.percent = 0  # of what make does
        self._blamed: Step | None = None
        self._reasons: list[str | None] = [None] * len(_REASONS)
        self._no_network = self._make_failed = False

    def read(self, line: str) -> None:
        """One line of output."""
        line = line.strip()
        self._no_network |= bool(_NO_NETWORK.search(line))
        if line == "running build_ext":
            self.step = "configure"
        elif found := _PERCENT.match(line):
            self.percent = int(found[1])
            if found[2] != "Built":
                self.step = _step_of(found[3], linking=found[2] == "Linking")
        elif self._blamed is None and (found := _MAKE_FAILED.search(line)):
            # Compilers run side by side: the last one that was started need not be the one that failed.
            if "/" in found[1]:
                self._blamed = _step_of(found[1], linking=".so" in found[1])
                self._make_failed = True
        elif self._blamed is None and self.step == "configure" and _CONFIGURE_FAILED.search(line):
            self._blamed = "configure"
        for place, pattern in enumerate(_REASONS):
            if self._reasons[place] is None and (found := pattern.search(line)):
                self._reasons[place] = found[0][:_MOST_CHARACTERS]

    @property
    def failed(self) -> bool:
        """Whether the build cannot succeed any more, though make goes on with the other framework for minutes."""
        return self._make_failed

    @property
    def failed_step(self) -> Step:
        """The step to blame, given that the build failed."""
        return self._blamed or self.step

    @property
    def reason(self) -> str:
        """The first complaint, given that the build failed."""
        if self._no_network and self.failed_step == "source package":
            return "the package registry cannot be reached; a build needs the network, a kept wheel does not"
        return next((reason for reason in self._reasons if reason), "it printed no error")


def _step_of(file: str, *, linking: bool) -> Step:
    if linking:
        return "link"
    return "compile TensorFlow" if "horovod/tensorflow/" in file else "compile torch"
