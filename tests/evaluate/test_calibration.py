"""Calibrations: the struct, its file, and the labels that it returns."""

import numpy as np
import pytest

from multiguard.errors import DataError, InvalidInputError
from multiguard.evaluate import Calibration, read_calibration, write_calibration

NAMES = ("cat", "dog", "cow")


def calibration(**changes):
    """A calibration with these changes."""
    values = {
        "recall": 0.8,
        "radius": 0.5,
        "k_prime": 2,
        "threshold": 7,
        "draws": 20,
        "noise": "gaussian:0.5",
        "images": 40,
        "votes_draws": 100,
        "label_names": NAMES,
        "model": "a model",
        "classifier_hash": "c",
        "images_hash": "i",
        "seed": 3,
    }
    return Calibration(**values | changes)


class TestCalibration:
    def test_chosen(self):
        """The labels of at least h hits, most hits first."""
        assert calibration().chosen(np.array([7, 6, 20])) == (2, 0)
        assert calibration().chosen(np.array([0, 0, 0])) == ()

    @pytest.mark.parametrize("hits", [[1, 2], [1.0, 2.0, 3.0], [-1, 0, 0], [21, 0, 0]])
    def test_bad_hits(self, hits):
        """Hits that no draws can have raise an error."""
        with pytest.raises(InvalidInputError, match="hits"):
            calibration().chosen(np.array(hits))

    def test_file(self, tmp_path):
        """What was written is read again; an edit is found; another calibration needs force."""
        path = tmp_path / "calibration.json"
        write_calibration(path, calibration(wrong=2.5, wrong_confidence=0.95))
        assert read_calibration(path) == calibration(wrong=2.5, wrong_confidence=0.95)
        with pytest.raises(InvalidInputError, match="force"):
            write_calibration(path, calibration(recall=0.9))
        write_calibration(path, calibration(recall=0.9), force=True)
        path.write_text(path.read_text().replace("0.9", "0.99"))
        with pytest.raises(DataError, match="edited"):
            read_calibration(path)
        with pytest.raises(DataError, match="multiguard calibrate"):
            read_calibration(tmp_path / "none.json")

    @pytest.mark.parametrize("changes", [{"threshold": 21}, {"threshold": 0}, {"recall": 1.0}, {"noise": "pink:1"}])
    def test_refused(self, changes):
        """No calibration holds values that promise nothing."""
        with pytest.raises(InvalidInputError):
            calibration(**changes)

    def test_sentence(self):
        """Each promise is one sentence, its ceilings rounded up."""
        assert "at least 80 % of the true labels" in calibration().sentence
        assert "with 95 % confidence" in calibration(confidence=0.95).sentence
        assert "2.35 of them are wrong" in calibration(wrong=2.341, wrong_confidence=0.95).sentence
