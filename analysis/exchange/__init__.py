"""What a backend's exchange takes by itself, how much of it a training hides, and what its step should take."""
