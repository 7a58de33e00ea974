"""`dlscale predict`, which is not implemented yet."""

from __future__ import annotations

import click

from dlscale.base.errors import UsageError


@click.command()
def predict() -> int:
    """Predict the curve for more nodes (not implemented yet)."""
    raise UsageError("dlscale predict is not implemented yet; for measured curves use: dlscale report")
