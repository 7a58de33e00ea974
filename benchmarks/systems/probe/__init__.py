"""Drafting a system's file from this node and from Slurm."""
