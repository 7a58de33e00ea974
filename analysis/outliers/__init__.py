"""Launches and windows that stand out: flagged, told with and without, and never dropped."""
