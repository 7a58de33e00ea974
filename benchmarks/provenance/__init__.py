"""What a record tells of how its numbers came about, so that they can be repeated and compared.

`analysis/comparison/fields.toml` says which of it blocks a comparison.
"""
