"""What dlscale itself costs, for asv: `make benchmark`, or `make benchmark NAME=report` for those with that name."""
