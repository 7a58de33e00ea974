"""Records: what is kept of a measurement, how it is assembled, stored, read and packed."""
