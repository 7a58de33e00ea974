"""The findings of a study, one per file: its arithmetic, its columns and its sentences."""
