"""Which backends can be used in this Python, and what the others miss. Everything that asks, asks here.

A backend's module may have `check(framework)`, which raises UsageError with the reason; it imports what must be
imported to know.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from dlscale.collectives.capabilities import capabilities
from dlscale.models.errors import UsageError


def problem(name: str, framework: str) -> str | None:
    """Why the backend cannot be used in that framework here; None if it can. Raises UsageError for unknown names."""
    row = capabilities(name)
    if framework not in row.frameworks:
        return f"{name} does not train in {framework}"
    if not importlib.util.find_spec(framework):
        return f"{framework} is not installed"
    module: Any = importlib.import_module(f"dlscale.collectives.{name}")
    if not hasattr(module, "check"):
        return None
    try:
        module.check(framework)
    except UsageError as error:
        return str(error)
    return None
