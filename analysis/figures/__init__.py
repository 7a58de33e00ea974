"""Figures of a scaling study as PNG, PDF, SVG and CSV; the same records give byte-identical files."""
