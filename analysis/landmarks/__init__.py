"""Published figures that are predicted from public inputs, and their claims as checks (benchmarks/landmarks)."""
