"""A provenance agrees with itself, and is read back as it was written."""

import pytest
from tests.votes.vote_runs import ADAPTIVE, KINDS, THRESHOLD, edit_manifest, provenance, write

from multiguard.errors import InvalidInputError, VotesError
from multiguard.io.records import checksum, decode_json, encode_json
from multiguard.votes import Provenance, read_votes


@pytest.mark.parametrize("kind", KINDS)
def test_round_trip(kind):
    """JSON gives back the same run, and the same checksum."""
    run = provenance(**KINDS[kind])
    assert decode_json(encode_json(run), Provenance) == run
    assert checksum(decode_json(encode_json(run), Provenance)) == checksum(run)


def test_integer_sigma():
    """A sigma given as an integer is the same run as the float that JSON reads back."""
    run = provenance(sigma=1)
    assert checksum(run) == checksum(provenance(sigma=1.0))
    assert run.differences(decode_json(encode_json(run), Provenance)) == []


def test_differences():
    """The fields in which two runs differ are named."""
    assert provenance().differences(provenance(noise_seed=5, sigma=0.25)) == ["noise", "noise_seed"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rule": "majority"}, "rule.*'majority'"),
        ({"rule": "threshold"}, "k_max"),
        ({**THRESHOLD, "score_threshold": None}, "score_threshold"),
        ({**THRESHOLD, "score_threshold": 1.0}, "strictly between 0 and 1"),
        ({"labelled": False}, "pilot draws"),
        ({"pilot_draws": -1}, "pilot_draws"),
        ({**ADAPTIVE, "stopping": None}, "belong together"),
        ({**ADAPTIVE, "stops": None}, "belong together"),
        ({"earlier_draws": (5, 3)}, "earlier_draws must increase"),
        ({**ADAPTIVE, "draws": 8}, "draws = 8"),
        ({**ADAPTIVE, "stops": (0, 4, 7)}, "must increase"),
        ({**ADAPTIVE, "stops": ()}, "must increase"),
    ],
)
def test_contradiction(changes, message):
    """A provenance that contradicts itself is refused, however it comes."""
    with pytest.raises(InvalidInputError, match=message):
        provenance(**changes)
    with pytest.raises(ValueError, match=message):
        decode_json(encode_json({**vars(provenance()), **changes}), Provenance)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        *[({"noise": text}, "sigma is the standard deviation") for text in ("gaussian:0", "gaussian:-1")],
        *[({"noise": "uniform:nan"}, "half_width"), ({"noise": "band:4"}, "number of columns")],
        *[({"noise": "pixels:9/8"}, "keep must be"), ({"noise": "dice:6"}, "unknown noise"), ({"noise": 0.5}, "noise")],
        *[({"draws": 0}, "at least 1"), ({"label_names": ()}, "at least 1"), ({"k_max": 0}, "at least 1")],
    ],
)
def test_impossible_numbers(tmp_path, changes, reason):
    """Numbers with which no votes can have been cast are refused: a claim would be made from them."""
    write(tmp_path, provenance())
    edit_manifest(tmp_path, lambda stored: stored["provenance"].update(changes))
    with pytest.raises(VotesError, match=r"manifest.json cannot be read: .*" + reason):
        read_votes(tmp_path)
