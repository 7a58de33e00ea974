"""Figures of a scaling study: PNG, PDF, SVG and the CSV behind each, redrawn to the byte from the same records."""
