"""Trainers over any `Collective`: the trainer of each framework, its gradient buckets and the communication threads.

Backends `ring` and `mpi` train through it. Backends with an interface of their own take the trainers only.
"""
