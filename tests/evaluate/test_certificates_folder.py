"""A certificates folder is read as it was written, old or new but never mixed, or refused by the file's name."""

import json
import os
import resource
import shutil
import subprocess
import sys
from dataclasses import asdict, replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.evaluate.votes_cases import (
    KINDS,
    as_lists,
    assert_same_certificates,
    assert_same_curves,
    random_votes,
    setting_of,
    source_of,
    stored_votes,
    votes_of_kind,
)

from multiguard.errors import DataError, InvalidInputError
from multiguard.evaluate import (
    Setting,
    ThresholdSetting,
    certify_votes,
    curves,
    folder,
    label_scores,
    radius_grid,
    sweep,
)
from multiguard.io.files import file_checksum
from multiguard.results import read_certificates, write_certificates
from multiguard.version import __version__
from multiguard.votes import read_votes

FILES = {"certificates.parquet", "curves.csv", "labels.csv", "certificates.json"}
GRID = radius_grid(0.5, step=0.25)
OLD, NEW = Setting(k=3, k_prime=2), Setting(k=4, k_prime=1)


@pytest.fixture(scope="module")
def votes_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "votes"
    random_votes(folder)
    return folder


@pytest.fixture(scope="module")
def votes(votes_folder):
    return read_votes(votes_folder)


def put(folder, votes, setting: Setting, *, grid=GRID, **options) -> None:
    certified = certify_votes(votes, setting, methods=("joint", "independent"))
    drawn = curves(certified, grid, bands=0.9, resamples=50)
    write_certificates(folder, certified, drawn, radius=grid, votes=votes, **options)


def test_what_is_written_is_read(tmp_path, votes, votes_folder) -> None:
    certified = certify_votes(votes, OLD, methods=("paper", "joint"))
    drawn = curves(certified, GRID, bands=0.9) + sweep(votes, OLD, {"k": [1, 2]}, GRID)
    source = {"data": {"name": "digits", "sizes": [1, 2.5, None]}, "model": {}}
    place = tmp_path / "a" / "certificates"
    write_certificates(place, certified, drawn, radius=GRID, votes=votes, source=source, command="multiguard certify")
    found = read_certificates(str(place))
    assert_same_certificates(found.certificates, certified)
    assert_same_curves(found.curves, drawn)
    assert as_lists(found.labels) == as_lists(label_scores(certified, GRID))
    assert (found.source, found.command) == (source, "multiguard certify")
    assert found.votes_hash == file_checksum(votes_folder / "manifest.json")
    assert found.certified_with == __version__
    expected = json.loads(json.dumps(asdict(votes.provenance)))
    del expected["image_ids"]
    assert found.provenance == expected
    assert {path.name for path in place.iterdir()} == FILES


def test_the_rows_have_names_for_people(tmp_path, votes) -> None:
    put(tmp_path, votes, OLD)
    table = pq.read_table(tmp_path / "certificates.parquet")
    own = ["id", "labels", "radii", "label_radii", "predicted", "predicted_hits", "draws", "image_sha256"]
    assert table.column_names == own
    row = table.to_pylist()[3]
    assert row["id"] == votes.ids[3]
    assert row["labels"] == [f"label {label}" for label in votes.labels[3]]
    assert list(row["radii"]) == ["joint", "independent"]
    assert len(row["radii"]["joint"]) == len(row["label_radii"]) == 3
    assert len(row["predicted"]) == len(row["predicted_hits"]) == 3


radius = st.one_of(st.floats(0), st.just(-np.inf))


def radii(count: int, *, falling: bool | None = None) -> st.SearchStrategy[np.ndarray]:
    """So many radii, in any order or in the one that is asked for."""
    several = st.lists(radius, min_size=count, max_size=count)
    ordered = several if falling is None else several.map(lambda values: sorted(values, reverse=bool(falling)))
    return ordered.map(lambda values: np.array(values, dtype=np.float64))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(
    data=st.data(),
    names=st.lists(st.text(st.characters(codec="utf-8"), max_size=5), min_size=20, max_size=20, unique=True),
)
def test_any_numbers_and_names_come_back(tmp_path, data, names) -> None:
    folder = tmp_path / "votes"
    shutil.rmtree(folder, ignore_errors=True)
    ranked = [np.array([[0, 1]] * 5), np.array([[1, 0]] * 5), np.array([[2, 0]] * 5)]
    votes = stored_votes(folder, ranked, [[0], [], [19, 4]], label_names=tuple(names))
    certified = certify_votes(votes, Setting(k=2, k_prime=1))
    drawn = curves(certified, GRID)
    certified = replace(
        certified,
        radii={method: tuple(data.draw(radii(n, falling=True)) for n in (1, 0, 2)) for method in ("joint", "jia")},
        label_radii=tuple(data.draw(radii(n)) for n in (1, 0, 2)),
    )
    drawn += [replace(curve, method="jia") for curve in drawn]
    write_certificates(tmp_path / "certificates", certified, drawn, radius=GRID, votes=votes, force=True)
    found = read_certificates(tmp_path / "certificates")
    assert_same_certificates(found.certificates, certified)
    assert as_lists(found.labels) == as_lists(label_scores(certified, GRID))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_of_certificates_is_read_as_it_was_written(tmp_path, kind) -> None:
    votes = votes_of_kind(tmp_path / "votes", **KINDS[kind])
    setting, source = setting_of(votes), source_of(votes)
    certified = certify_votes(votes, setting, methods=("independent", "joint"), labels=source)
    drawn = curves(certified, GRID, bands=0.9, resamples=20) + sweep(
        votes, setting, {"alpha": [0.1]}, GRID, labels=source
    )
    write_certificates(tmp_path / "c", certified, drawn, radius=GRID, votes=votes)
    found = read_certificates(tmp_path / "c")
    assert_same_certificates(found.certificates, certified)
    assert_same_curves(found.curves, drawn)
    assert as_lists(found.labels) == as_lists(label_scores(certified, GRID))
    stored = json.loads((tmp_path / "c" / "certificates.json").read_text())
    assert (stored["rule"], stored["labelled"]) == (votes.rule, source == "truth")
    columns = pq.read_table(tmp_path / "c" / "certificates.parquet").column_names
    assert ("false_radii" in columns) == (votes.rule == "threshold")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(data=st.data())
def test_any_numbers_of_the_threshold_rule_come_back(tmp_path, data) -> None:
    shutil.rmtree(tmp_path / "votes", ignore_errors=True)
    votes = votes_of_kind(tmp_path / "votes", images=3, labels=4, **KINDS["adaptive unlabelled threshold"])
    certified = certify_votes(votes, ThresholdSetting(0.4), labels="pilot")
    drawn = curves(certified, GRID)
    names, several = st.integers(0, 3), st.lists(st.integers(0, 3), unique=True, max_size=4).map(tuple)
    labels = (tuple(data.draw(st.permutations(range(4)))), *(data.draw(several) for _ in range(2)))
    methods = data.draw(st.lists(st.sampled_from(["joint", "independent"]), min_size=1, unique=True))
    ceilings = [radii(4 - len(own), falling=False) for own in labels]
    certified = replace(
        certified,
        setting=ThresholdSetting(data.draw(st.floats(1e-300, 0.999)), data.draw(st.floats(1e-200, 0.999)), 200),
        labels=labels,
        radii={method: tuple(data.draw(radii(len(own), falling=True)) for own in labels) for method in methods},
        false_radii={method: tuple(data.draw(each) for each in ceilings) for method in methods},
        label_radii=tuple(data.draw(radii(len(own))) for own in labels),
        predicted=tuple((data.draw(names),) for _ in range(3)),
        predicted_hits=tuple((data.draw(st.integers(0, draws)),) for draws in certified.draws),
    )
    counted = {"images": sum(map(bool, labels)), "without_labels": sum(not own for own in labels)}
    drawn = [
        replace(curve, method=method, setting=certified.setting, scores=replace(curve.scores, **counted))
        for curve in drawn
        for method in methods
    ]
    write_certificates(tmp_path / "certificates", certified, drawn, radius=GRID, votes=votes, force=True)
    found = read_certificates(tmp_path / "certificates")
    assert_same_certificates(found.certificates, certified)


def test_certificates_are_replaced_only_by_force(tmp_path, votes) -> None:
    put(tmp_path, votes, OLD)
    (tmp_path / "report.html").write_text("mine")
    with pytest.raises(InvalidInputError, match="holds certificates already; --force"):
        put(tmp_path, votes, NEW)
    assert read_certificates(tmp_path).certificates.setting.k == 3
    put(tmp_path, votes, NEW, force=True)
    assert read_certificates(tmp_path).certificates.setting.k == 4
    assert {path.name for path in tmp_path.iterdir()} == {*FILES, "report.html"}


@pytest.mark.parametrize("name", sorted(FILES))
def test_not_even_a_single_file_of_these_names_is_replaced(tmp_path, votes, name) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(InvalidInputError, match="--force"):
        put(tmp_path, votes, OLD)
    assert (tmp_path / name).read_text() == "mine"


def edited(path) -> None:
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])


def truncated(path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def emptied(path) -> None:
    path.write_bytes(b"")


def swapped(path) -> None:
    other = path.with_name("labels.csv" if path.name != "labels.csv" else "curves.csv")
    path.write_bytes(other.read_bytes())


def removed(path) -> None:
    path.unlink()


@pytest.mark.parametrize("name", sorted(FILES))
@pytest.mark.parametrize("harm", [edited, truncated, emptied, swapped, removed])
def test_a_file_that_was_harmed_is_refused_by_name(tmp_path, votes, name, harm) -> None:
    put(tmp_path, votes, OLD)
    harm(tmp_path / name)
    with pytest.raises(DataError, match=name.replace(".", r"\.")):
        read_certificates(tmp_path)


@pytest.mark.parametrize(
    ("field", "value"),
    [("setting", {"k": 3, "k_prime": 2, "alpha": 1e-9, "draws": 200}), ("rule", "threshold"), ("labelled", False)],
)
def test_a_claim_improved_by_hand_is_refused(tmp_path, votes, field, value) -> None:
    put(tmp_path, votes, OLD)
    path = tmp_path / "certificates.json"
    stored = json.loads(path.read_text())
    assert stored[field] != value
    stored[field] = value
    path.write_text(json.dumps(stored))
    with pytest.raises(DataError, match=r"certificates\.json was altered"):
        read_certificates(tmp_path)


def test_another_format_is_refused(tmp_path, votes) -> None:
    put(tmp_path, votes, OLD)
    path = tmp_path / "certificates.json"
    path.write_text(path.read_text().replace('"version": 3', '"version": 1', 1))
    with pytest.raises(DataError, match="version 3"):
        read_certificates(tmp_path)


def test_a_folder_that_is_none_is_refused(tmp_path, votes) -> None:
    with pytest.raises(DataError, match="not a certificates folder"):
        read_certificates(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInputError, match="name another"):
        put(tmp_path / "file", votes, OLD)


def test_certificates_of_other_votes_are_refused(tmp_path, votes) -> None:
    certified = certify_votes(votes, OLD)
    for name, other in (
        ("images", random_votes(tmp_path / "fewer", images=10)),
        ("sigma", random_votes(tmp_path / "sigma", sigma=0.25)),
    ):
        with pytest.raises(InvalidInputError, match=name):
            write_certificates(tmp_path / "c", certified, [], radius=GRID, votes=other)
    threshold = votes_of_kind(tmp_path / "sets", images=11, labels=20, **KINDS["unlabelled threshold"])
    with pytest.raises(InvalidInputError, match="of the top-k rule, these votes of the threshold"):
        write_certificates(tmp_path / "c", replace(certified, labelled=False), [], radius=GRID, votes=threshold)
    adaptive = votes_of_kind(tmp_path / "adaptive", images=11, labels=20, **KINDS["adaptive unlabelled"])
    with pytest.raises(InvalidInputError, match="images"):
        write_certificates(tmp_path / "c", replace(certified, labelled=False), [], radius=GRID, votes=adaptive)
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda curve: replace(curve, sigma=0.25), "a curve is of sigma 0.25, the certificates of sigma 0.5"),
        (lambda curve: replace(curve, setting=ThresholdSetting(0.5)), "a curve is of the threshold rule"),
        (
            lambda curve: replace(curve, scores=replace(curve.scores, images=3)),
            "a curve averages 3 images and leaves out 3",
        ),
        (lambda curve: replace(curve, setting=NEW), "no curve of the method joint .mean. in their own setting"),
        (lambda curve: replace(curve, method="jia"), "no curve of the method joint .mean."),
        (
            lambda curve: replace(curve, scores=replace(curve.scores, images=9, without_labels=2)),
            "averages 9 images and leaves out 2",
        ),
    ],
)
def test_curves_of_other_certificates_are_refused(tmp_path, votes, spoil, message) -> None:
    certified = certify_votes(votes, OLD)
    first, *others = curves(certified, GRID)
    with pytest.raises(InvalidInputError, match=message):
        write_certificates(tmp_path / "c", certified, [spoil(first), *others], radius=GRID, votes=votes)
    assert not (tmp_path / "c").exists()


def test_labels_of_one_name_are_refused(tmp_path) -> None:
    names = ("cat", "cat", *(f"label {i}" for i in range(18)))
    votes = random_votes(tmp_path / "votes", label_names=names)
    with pytest.raises(InvalidInputError, match="2 labels are named 'cat'"):
        put(tmp_path / "c", votes, OLD)


def test_a_source_that_json_cannot_hold_is_refused(tmp_path, votes) -> None:
    for value in (object(), float("nan")):
        with pytest.raises(InvalidInputError, match="plain JSON"):
            put(tmp_path, votes, OLD, source={"data": value})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("limit", "grid", "command"),
    [(100, GRID, ""), (8000, radius_grid(0.5), ""), (100_000, GRID, "x" * 100_000)],
    ids=["certificates.parquet", "curves.csv", "certificates.json"],
)
def test_a_full_disk_leaves_the_old_set(tmp_path, votes, limit, grid, command) -> None:
    put(tmp_path, votes, OLD)
    before = {name: (tmp_path / name).read_bytes() for name in FILES}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            put(tmp_path, votes, NEW, grid=grid, command=command, force=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {path.name for path in tmp_path.iterdir()} == FILES
    assert {name: (tmp_path / name).read_bytes() for name in FILES} == before
    assert read_certificates(tmp_path).certificates.setting.k == 3
    put(tmp_path, votes, NEW, grid=grid, command=command, force=True)
    assert read_certificates(tmp_path).certificates.setting.k == 4


PRELUDE = """
import os, sys
import multiguard.results.rows
from tests.evaluate.test_certificates_folder import NEW, OLD, put
from multiguard.results import read_certificates
from multiguard.votes import read_votes
votes, folder = read_votes(sys.argv[1]), sys.argv[2]
"""

# Ends a writer for good at the n-th time it touches a name on the disk, for every n until one comes through.
KILLED = """
def child(work):
    process = os.fork()
    if process == 0:
        os._exit(work())
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])

def write_until(moment):
    seen = 0
    def hook(event, arguments):
        nonlocal seen
        if event in ("os.rename", "os.mkdir", "os.rmdir", "os.remove", "tempfile.mkstemp"):
            seen += 1
            if seen == moment:
                os._exit(9)
    sys.addaudithook(hook)
    put(folder, votes, NEW, force=True)
    return 0

def read():
    return read_certificates(folder).certificates.setting.k

moment, ended = 1, 9
while ended == 9:
    assert child(lambda: put(folder, votes, OLD, force=True) or 0) == 0
    assert child(read) == 3
    ended = child(lambda: write_until(moment))
    print(child(read), end=" ")
    moment += 1
assert ended == 0
"""


def run(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PRELUDE + code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))


def test_a_writer_killed_at_any_moment_leaves_a_whole_set(tmp_path, votes_folder) -> None:
    killed = run(KILLED, votes_folder, tmp_path)
    output, errors = killed.communicate(timeout=300)
    assert killed.returncode == 0, errors
    found = output.split()
    assert set(found) == {"3", "4"}
    assert found == sorted(found)
    assert len(found) > 12
    assert {path.name for path in tmp_path.iterdir()} == FILES


@pytest.mark.parametrize("moment", [1, 2, 3])
def test_a_set_replaced_while_it_is_read_is_read_anew(tmp_path, votes, monkeypatch, moment) -> None:
    put(tmp_path, votes, OLD)
    verified, calls = folder._verified, []

    def interrupted(path, sha256) -> bytes:
        calls.append(path)
        if len(calls) == moment:
            put(tmp_path, votes, NEW, force=True)
        return verified(path, sha256)

    monkeypatch.setattr(folder, "_verified", interrupted)
    found = read_certificates(tmp_path)
    assert found.certificates.setting.k == 4
    assert {curve.setting.k for curve in found.curves} == {4}
    assert len(calls) == moment + 3


def test_a_reader_beside_a_writer_finds_one_set_or_the_other(tmp_path, votes, votes_folder) -> None:
    put(tmp_path, votes, OLD)
    writer = run(
        "while True:\n    put(folder, votes, NEW, force=True)\n    put(folder, votes, OLD, force=True)",
        votes_folder,
        tmp_path,
    )
    try:
        found = set()
        for reading in range(5000):
            read = read_certificates(tmp_path)
            assert all(curve.setting == read.certificates.setting for curve in read.curves)
            assert {len(each) for each in read.certificates.predicted} == {read.certificates.setting.k}
            found.add(read.certificates.setting.k)
            if len(found) == 2 and reading > 300:
                break
    finally:
        writer.kill()
        writer.communicate()
    assert found == {3, 4}
    put(tmp_path, votes, NEW, force=True)
    assert read_certificates(tmp_path).certificates.setting.k == 4
    assert {path.name for path in tmp_path.iterdir()} == FILES
