"""Prediction: from a node's profile and a network's description to the curve over nodes, with its band."""
