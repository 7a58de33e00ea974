"""What dlscale itself costs, for asv: `make benchmark`, or `make benchmark NAME=report` for those with that name."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3]))  # of tests.made_records
