"""One function per spelling of a launcher; `launchers.py` is the door."""
