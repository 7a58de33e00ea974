"""How good a trained network is: what metrics are (`metric`), and those of image classifiers (`classifier`).

Those of the other workloads are in their folders. A wrong array is a ValueError.
"""
