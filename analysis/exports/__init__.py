"""A study's records and numbers in forms that other tools read."""
