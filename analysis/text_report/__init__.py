"""The report for a terminal: the page's first screen and its plots in characters, then the table with all numbers."""
