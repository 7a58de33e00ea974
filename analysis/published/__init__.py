"""Published figures: their values with sources, our own series beside them, and whether the two agree."""
