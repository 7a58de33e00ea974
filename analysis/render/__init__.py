"""Renders a study's numbers: for a terminal, as one HTML page, as markdown, and as files for other tools."""
