"""Published figures: their values with sources, our own series beside them, and what the two say of each other."""
