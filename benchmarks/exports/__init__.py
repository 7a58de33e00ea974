"""Records in other people's formats, and tests for other people's harnesses (docs/report.md)."""
