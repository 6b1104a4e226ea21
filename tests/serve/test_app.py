"""The interface: what is answered is what the library proves, and what is refused is refused in one line."""

import contextlib
import hashlib
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from tests.serve.client import until
from tests.serve.colours import LABELS, SIZE, encode, make_predictor, serve

from multiguard.certify import BandAblation, Gaussian, PixelAblation
from multiguard.errors import InvalidInputError
from multiguard.serve import ServeConfig, Service
from multiguard.serve.answer import STREAM
from multiguard.serve.live_page import slider_radii
from multiguard.serve.runs import _proof
from multiguard.smooth import LivePrediction


def repeated(running, answer, image, draws):
    """The same prediction, made by the library with the noise seed of the answer."""
    predictor = running.service.predictor
    live = LivePrediction(
        predictor.smoother,
        image,
        predictor.rule,
        pilot_draws=50,
        noise_seed=int(answer["noise_seed"]),
        image_id=answer["image"]["sha256"],
    )
    live.draw(50 + draws)
    return live


def test_prediction(running, orange, orange_pixels):
    """One answer at the end: labels and radii are the library's at this noise seed, never above."""
    answer = running.client.predict(orange, query="?draws=300").json
    assert answer["ended"] == "draws"
    assert answer["image"] == {"width": 8, "height": 8, "sha256": hashlib.sha256(orange).hexdigest()}
    live = repeated(running, answer, orange_pixels, 300)
    expected = live.prediction()
    assert [each["label"] for each in answer["labels"]] == list(expected.names)
    assert next(each["confirmed"] for each in answer["labels"])
    for each, radius in zip(answer["labels"], expected.radii, strict=True):
        # The server may have looked at earlier moments as well, and what was proved stays proved.
        assert (each["radius"] is None) == (not each["confirmed"])
        assert each["radius"] is None or each["radius"] >= radius


def test_threshold_prediction(threshold, orange):
    """The threshold rule says as well how many other labels may come in."""
    answer = threshold.client.predict(orange).json
    assert {each["label"] for each in answer["labels"]} == {"grey", "red"}
    assert len(answer["other_radii"]) == len(LABELS) - 2
    assert answer["other_radii"][-1] > 0


def test_stream(running, orange):
    """Draws and claims come as they are made, and no radius ever falls."""
    told = list(running.client.stream("/api/predict?draws=2000", orange))
    kinds = [kind for kind, _ in told]
    assert (kinds[0], kinds[-1]) == ("run", "done")
    draws = [data for kind, data in told if kind == "draws"]
    assert len(draws) > 2
    made = [each["draws"] for each in draws if each["phase"] == "certify"]
    assert made == sorted(made)
    assert made[-1] == 2000
    assert any("copy" in each and each["copy"]["uri"].startswith("data:image/png") for each in draws)
    claims = [data for kind, data in told if kind == "claims"]
    radii = [[-1 if each["radius"] is None else each["radius"] for each in claim["labels"]] for claim in claims]
    assert radii == sorted(radii)
    assert claims[-1]["draws"] == 2000


def test_more_draws(running, orange, orange_pixels):
    """A run continues where it ended, with the draws that one longer run would have made."""
    first = running.client.predict(orange, query="?draws=100").json
    second = running.client.ask("POST", f"/api/runs/{first['run']}/more?draws=150").json
    assert (first["draws"], second["draws"], second["noise_seed"]) == (100, 250, first["noise_seed"])
    run = running.service.runs.get(first["run"])
    assert (run.live.votes == repeated(running, first, orange_pixels, 250).votes).all()


def test_stop(running, orange):
    """A run stops when it is told to, with a last look at what is proved; it can be continued."""
    told = running.client.stream("/api/predict?draws=1000000", orange)
    _, head = next(told)
    events = []
    while not events or events[-1][0] != "claims":
        events.append(next(told))
    busy = running.client.ask("POST", f"/api/runs/{head['run']}/more")
    assert (busy.status, "stop it first" in busy.json["error"]) == (409, True)
    assert running.client.ask("POST", f"/api/runs/{head['run']}/stop").status == 200
    events += told
    assert events[-1] == ("done", {"reason": "stopped"})
    last = {kind: data["draws"] for kind, data in events if kind in ("draws", "claims")}
    assert last["claims"] == last["draws"] < 1_000_000
    assert running.client.ask("POST", f"/api/runs/{head['run']}/more?draws=10").json["ended"] == "draws"
    beyond = running.client.ask("POST", f"/api/runs/{head['run']}/more?draws=1000000")
    assert (beyond.status, "at most" in beyond.json["error"]) == (400, True)


def test_stop_while_waiting(running, orange):
    """A request that is stopped while it waits ends when its turn comes, without a draw."""
    run = running.client.predict(orange, query="?draws=10").json
    first = running.client.stream("/api/predict?draws=1000000", orange)
    assert next(first)[0] == "run"
    waiting = running.client.stream(f"/api/runs/{run['run']}/more?draws=100000")
    assert next(waiting)[0] == "waiting"
    assert running.client.ask("POST", f"/api/runs/{run['run']}/stop").status == 200
    first.close()
    assert list(waiting)[-1] == ("done", {"reason": "stopped"})


def test_time_limit(orange):
    """A request that takes too long ends with what is proved by then."""
    with contextlib.contextmanager(serve)(make_predictor(), seconds=0.5) as limited:
        answer = limited.client.predict(orange, query="?draws=1000000").json
    assert answer["ended"] == "time"
    assert 0 < answer["draws"] < 1_000_000
    assert answer["labels"][0]["confirmed"]


def test_attack(running, orange):
    """Well inside the radii what is proved stays; far outside the linear classifier changes, and nothing is proved.

    The noise seed is random, and the second label of the smoothed classifier is not proved: it may change.
    """
    run = running.client.predict(orange).json
    weak = running.client.ask("POST", f"/api/runs/{run['run']}/attack?radius=0.1").json
    strong = running.client.ask("POST", f"/api/runs/{run['run']}/attack?radius=1.5").json
    for part in ("bare", "smoothed"):
        assert next(each["label"] for each in weak[part]["after"]) == "red"
        assert 0 <= strong[part]["norm"] <= 1.5  # 0 if the search found nothing better than the image
        assert strong[part]["perturbation"].startswith("data:image/png")
    assert strong["bare"]["norm"] > 0
    assert not weak["bare"]["changed"]
    assert strong["bare"]["changed"]
    assert weak["smoothed"]["proved"][0] == 0
    assert strong["smoothed"]["proved"] == []
    assert not weak["smoothed"]["contradicted"]


def test_first_change(running, orange):
    """Without a radius the attack is at the first one of the slider at which the classifier without noise changes."""
    run = running.client.predict(orange).json["run"]
    found = running.client.ask("POST", f"/api/runs/{run}/attack").json
    grid = slider_radii(Gaussian(0.5))
    assert found["radius"] in grid[1:]
    assert found["bare"]["changed"] or found["radius"] == grid[-1]
    weaker = [radius for radius in grid[1:] if radius < found["radius"] / 2]
    again = running.client.ask("POST", f"/api/runs/{run}/attack?radius={weaker[-1]}").json
    assert not again["bare"]["changed"]


def test_calibrated(calibrated, orange, orange_pixels):
    """The set of a calibration with its promise, of exactly its draws; two requests have different ones."""
    one, other = (calibrated.client.predict(orange).json for _ in range(2))
    own = calibrated.service.predictor.calibrated
    assert one["promise"] == own.calibration.sentence
    assert one["noise_seed"] != other["noise_seed"]
    runs = [calibrated.service.runs[each["run"]].live for each in (one, other)]
    assert not (runs[0].votes == runs[1].votes).all()
    seed = {"noise_seed": int(one["noise_seed"]), "image_id": one["image"]["sha256"]}
    found = own.predict(orange_pixels, **seed)
    assert [(each["index"], each["radius"]) for each in one["labels"]] == list(
        zip(found.labels, found.radii, strict=True)
    )
    assert (one["draws"], one["goal"]) == (60, 60)
    beyond = calibrated.client.ask("POST", f"/api/runs/{one['run']}/more")
    assert (beyond.status, "send the image again for fresh ones" in beyond.json["error"]) == (400, True)
    attacked = calibrated.client.ask("POST", f"/api/runs/{one['run']}/attack?radius=0.1").json
    assert attacked["smoothed"]["draws"] == 60
    assert attacked["smoothed"]["after"][0]["label"] == "red"
    facts = calibrated.client.ask("GET", "/api/model").json
    assert (facts["rule"], facts["promise"]) == ("calibrated", own.calibration.sentence)


def test_repeated_attacks(running, orange):
    """What fresh draws say against a proof counts less the more often the image was attacked."""
    run = running.service.runs[running.client.predict(orange).json["run"]]
    radius = run.live.prediction().radii[0]
    scores = np.array([[0.1, 0.45, 0.45, 0.0]], np.float32)  # red is the third of the labels, and two are returned
    found = SimpleNamespace(scores_after=scores)
    seen = []
    for run.attacks in (1, 10, 10**4, 10**9):
        seen.append(_proof(run, found, radius, 100)["contradicted"])
    assert seen == sorted(seen, reverse=True)
    assert (seen[0], seen[-1]) == (True, False)


def test_labels_without_a_hit(orange):
    """A label that no draw returned is not in the answer, nor among those before and after an attack."""
    for server in serve(make_predictor(noise=Gaussian(0.001))):
        run = server.client.predict(orange).json
        assert [each["label"] for each in run["labels"]] == ["red"]
        attacked = server.client.ask("POST", f"/api/runs/{run['run']}/attack?radius=0.01").json
        for moment in ("before", "after"):
            assert [each["label"] for each in attacked["smoothed"][moment]] == ["red"]
            assert [each["label"] for each in attacked["bare"][moment]] == ["red", "grey"]


def test_vanished_client(running, orange):
    """A client that disappears midway ends its work, whether it runs or waits, and frees its place."""
    streams = [running.client.stream("/api/predict?draws=1000000", orange) for _ in range(2)]
    assert next(streams[0])[0] == "run"
    assert next(streams[1])[0] == "waiting"
    assert len(running.service.worker.tasks) == 2
    for stream in streams:
        stream.close()
    assert until(lambda: not running.service.worker.tasks)
    assert running.client.predict(orange, query="?draws=10").status == 200


def test_clients_that_never_read(orange):
    """Clients that never read an answer end with their time, which they share, and another one is served."""
    head = f"POST /api/predict?draws=1000000 HTTP/1.1\r\nHost: localhost\r\nAccept: {STREAM}\r\n"
    head += f"Content-Type: image/png\r\nContent-Length: {len(orange)}\r\n\r\n"
    with contextlib.contextmanager(serve)(make_predictor(), queue=4, seconds=1) as running, contextlib.ExitStack() as s:
        host, _, port = running.client.host.partition(":")
        for _ in range(4):
            s.enter_context(socket.create_connection((host, int(port)))).sendall(head.encode() + orange)
        assert until(lambda: len(running.service.worker.tasks) == 4)
        assert running.client.predict(orange).status == 429
        assert until(lambda: running.service.worker.tasks == [])
        assert running.client.predict(orange, query="?draws=10").status == 200


def test_many_at_once(running, orange):
    """Of 50 requests at once some are answered and the others told to come back; then all is as before."""
    with ThreadPoolExecutor(50) as pool:
        replies = list(pool.map(lambda _: running.client.predict(orange, query="?draws=300"), range(50)))
    assert {reply.status for reply in replies} == {200, 429}
    refused = [reply for reply in replies if reply.status == 429]
    assert all(int(reply.headers["retry-after"]) > 0 and "come back" in reply.json["error"] for reply in refused)
    assert sum(reply.status == 200 for reply in replies) >= 4
    assert until(lambda: running.service.worker.tasks == [])
    assert running.client.predict(orange, query="?draws=10").status == 200


def test_no_files(running, orange):
    """Neither an image nor anything made from it is written to disk."""
    written = []

    def watch(event, arguments):
        if event == "open" and watching and arguments[1] is not None and set(str(arguments[1])) & set("wax+"):
            written.append(arguments[0])

    watching = True
    sys.addaudithook(watch)
    large = encode(size=(400, 300), kind="BMP")[: 10**5] + bytes(10**5 - 5)
    assert running.client.predict(large).status == 422
    assert running.client.predict(orange).status == 200
    watching = False
    assert written == []


@pytest.mark.parametrize(
    ("method", "path", "status", "words"),
    [
        ("POST", "/api/predict?draws=0", 400, "draws must be a whole number"),
        ("POST", "/api/predict?draws=1e3", 400, "draws must be a whole number"),
        ("POST", "/api/predict?draws=99999999999999999999", 400, "draws must be a whole number"),
        ("POST", "/api/runs/nothing/more", 404, "no such run"),
        ("POST", "/api/runs/nothing/stop", 404, "no such run"),
        ("POST", "/api/runs/nothing/attack?radius=1", 404, "no such run"),
        ("GET", "/api/predict", 405, "Not Allowed"),
        ("GET", "/nothing", 404, "Not Found"),
        ("GET", "/examples/1", 404, "no such example"),
        ("GET", f"/examples/{'9' * 5000}", 404, "no such example"),
    ],
)
def test_refusals(running, orange, method, path, status, words):
    """Wrong requests are refused with a status and one sentence."""
    reply = running.client.ask(method, path, orange, {"Content-Type": "image/png"})
    assert (reply.status, words in reply.json["error"]) == (status, True)


@pytest.mark.parametrize("radius", ["0", "-1", "nan", "inf", "1e9", "abc", ""])
def test_attack_radius(running, orange, radius):
    """The norm of an attack is a positive number of a sensible size."""
    run = running.client.predict(orange, query="?draws=1").json["run"]
    reply = running.client.ask("POST", f"/api/runs/{run}/attack?radius={radius}")
    assert (reply.status, "radius must be a number above 0" in reply.json["error"]) == (400, True)


def test_other_attacker(orange):
    """Where pixels are counted, radii are whole numbers, in claims, on the slider and in attacks."""
    for running in serve(make_predictor(noise=PixelAblation(8, SIZE * SIZE))):
        told = running.client.ask("GET", "/api/model").json
        assert (told["noise"], told["attacker"]) == ("pixels:8/64", "pixels")
        page = running.client.ask("GET", "/").body.decode()
        assert "R pixels may change, any of 64" in page
        assert "any change of at most 1 pixel" in page
        run = running.client.predict(orange).json
        radii = [each["radius"] for each in run["labels"] if each["radius"] is not None]
        assert all(radius == int(radius) for radius in radii)
        found = running.client.ask("POST", f"/api/runs/{run['run']}/attack?radius=2").json
        assert found["threat"] == "any change of at most 2 pixels"
        assert {found[part]["norm"] for part in ("bare", "smoothed")} <= {0.0, 1.0, 2.0}
        refused = running.client.ask("POST", f"/api/runs/{run['run']}/attack?radius=1.5")
        assert (refused.status, "whole number" in refused.json["error"]) == (400, True)


def test_no_draws():
    """Bands have no draws to show, and the server says so before it starts."""
    with pytest.raises(InvalidInputError, match="every band votes once; take multiguard predict"):
        Service(make_predictor(noise=BandAblation(2, SIZE)), ServeConfig())
