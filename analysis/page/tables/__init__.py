"""The page's tables: what is shown is rounded, what is downloaded is as in `--json`."""
