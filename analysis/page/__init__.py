"""The report as one HTML page: content without HTML (`content.py`), the 12 rules (`rules/`), the file (`write.py`)."""
