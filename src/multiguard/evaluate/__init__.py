"""What certificates are worth on a set of pictures: certified precision, recall and F1 at a radius."""

from multiguard.evaluate.scores import Averaging, Scores, image_scores, set_scores

__all__ = ["Averaging", "Scores", "image_scores", "set_scores"]
