"""What the records of a study show, one finding a file: its arithmetic, its columns and its sentences."""
