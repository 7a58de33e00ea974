"""Records of measurements: their contents, and how they are assembled, stored and read."""
