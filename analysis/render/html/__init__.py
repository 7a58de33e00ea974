"""The report as one HTML page: its content (`page.py`), the 12 rules (`rules.py`), the file (`document.py`)."""
