"""What turns a collective into a trainer, one underscore module per framework."""
