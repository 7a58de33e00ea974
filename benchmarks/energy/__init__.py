"""The energy that a node takes while it trains, where the machine lets it be read."""
