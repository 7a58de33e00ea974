"""Declared comparisons, and which of them may be claimed."""
