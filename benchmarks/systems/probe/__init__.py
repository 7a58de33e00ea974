"""What a machine says of itself, and the draft of a system's file made from it."""
