"""What `dlscale doctor` says beside its table of backends."""

import pytest
from click.testing import CliRunner

from dlscale.benchmarks.cli import cli


@pytest.mark.slow
def test_it_runs_where_every_framework_is_installed():
    """With nothing in its place: JAX, which has no GPUs here, must not stop it."""
    done = CliRunner().invoke(cli, ["doctor"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert any(line.split() == ["torch", "tensorflow", "jax"] for line in done.output.splitlines())
    # A remedy stands in its line once.
    reasons = [line.strip() for line in done.output.splitlines() if line.startswith("  (")]
    assert not [line for line in reasons if line.count("make horovod") > 1], reasons
