"""Plan, launch, measure, record."""
