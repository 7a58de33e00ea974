"""What tests of analysis share: what a terminal shows of a study, and figures without pictures."""

import pytest


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are laid out and their files written, but without pictures, which take longest."""
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *_arguments, **_options: None)
