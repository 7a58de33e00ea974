"""How good a trained network is, computed from arrays alone: no framework, no files.

`roc` and `selection` judge HEP-CNN, `maps` CosmoGAN, and `top1` the image classifiers. A wrong array is a
ValueError.
"""
