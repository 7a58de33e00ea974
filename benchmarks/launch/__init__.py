"""Starts launches of a plan in an environment, watches them, and turns whatever happens into records."""
