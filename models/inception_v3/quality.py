"""How well Inception v3 classifies images that it was not trained on."""

from dlscale.models.quality.classifier import METRICS, measure, metrics, read

__all__ = ["METRICS", "measure", "metrics", "read"]
