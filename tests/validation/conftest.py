"""The made-up records of the analysis' tests."""

from tests.analysis.conftest import make_record, profile_record  # noqa: F401
