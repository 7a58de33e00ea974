"""Published figures: their values with sources, compared with our own series."""
