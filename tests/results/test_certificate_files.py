"""Certificates are read as they were written, old or new but never mixed, or refused with the name of the file."""

import json
import os
import resource
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.evaluate.votes_cases import (
    KINDS,
    as_lists,
    assert_same_certificates,
    assert_same_curves,
    config_of,
    random_votes,
    source_of,
    stored_votes,
    votes_of_kind,
)
from tests.results.stored_metadata import edit_metadata, forge, load_metadata

from multiguard.certify import Threshold, TopK
from multiguard.certify.noise import Gaussian
from multiguard.errors import DataError, InvalidInputError
from multiguard.evaluate import CertifyConfig, certify_votes, curves, label_scores, radius_grid, scores, sweep
from multiguard.io.files import file_checksum
from multiguard.results import certificate_files, read_certificates, read_curves, write_certificates
from multiguard.version import __version__
from multiguard.votes import read_votes

PARQUET = "certificates.parquet"
FILES = {PARQUET, "curves.csv", "labels.csv", f".{PARQUET}.json"}
GRID = radius_grid(Gaussian(0.5), step=0.25)
OLD, NEW = CertifyConfig(TopK(k=3, k_prime=2)), CertifyConfig(TopK(k=4, k_prime=1))


@pytest.fixture(scope="module")
def votes_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "votes"
    random_votes(folder)
    return folder


@pytest.fixture(scope="module")
def votes(votes_folder):
    return read_votes(votes_folder)


def put(folder, votes, config: CertifyConfig, **options) -> None:
    certificates, made = make(votes, config)
    write_certificates(folder, certificates, made, radius=GRID, votes=votes, **options)


@cache
def make(votes, config: CertifyConfig):
    """The certificates of these votes and their curves."""
    certificates = certify_votes(votes, config, methods=("joint", "independent"))
    return certificates, curves(certificates, GRID, bands=0.9)


@pytest.fixture(scope="module")
def written(votes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("written")
    put(folder, votes, OLD)
    return folder


@pytest.fixture
def certified(written, tmp_path):
    """A certificates folder that a test may damage."""
    return shutil.copytree(written, tmp_path / "certificates")


def k_of(folder) -> int:
    return read_certificates(folder).certificates.config.rule.k


# ------------------------------------------------------------------------------------------- what is read back


def test_round_trip(tmp_path, votes, votes_folder) -> None:
    """Certificates, curves with sweeps, label scores and metadata read back exactly as they were written."""
    certificates = certify_votes(votes, OLD, methods=("paper", "joint"))
    made = curves(certificates, GRID, bands=0.9) + sweep(votes, OLD, {"k": [1, 2]}, GRID)
    source = {"data": {"name": "digits", "sizes": [1, 2.5, None]}, "model": {}}
    folder, command = tmp_path / "a" / "certificates", "multiguard certify"
    write_certificates(folder, certificates, made, radius=GRID, votes=votes, source=source, command=command)
    found = read_certificates(str(folder))
    assert_same_certificates(found.certificates, certificates)
    assert_same_curves(found.curves, made)
    assert_same_curves(read_curves(folder / "curves.csv"), made)
    assert as_lists(found.labels) == as_lists(label_scores(certificates, GRID))
    assert (found.source, found.command, found.certified_with) == (source, command, __version__)
    assert found.votes_hash == file_checksum(votes_folder / "manifest.json")
    expected = json.loads(json.dumps(vars(votes.provenance), default=str))
    del expected["image_ids"]
    assert found.provenance == expected
    assert {path.name for path in folder.iterdir()} == FILES


def test_readable_rows(written, votes) -> None:
    """The table has names in place of label indices, and columns that any Parquet reader shows."""
    table = pq.read_table(written / PARQUET)
    columns = ["id", "labels", "radii", "label_radii", "predicted", "predicted_hits", "draws", "image_sha256", "bare"]
    assert table.column_names == columns
    row = table.to_pylist()[3]
    assert row["id"] == votes.ids[3]
    assert row["labels"] == [f"label {label}" for label in votes.labels[3]]
    assert list(row["radii"]) == ["joint", "independent"]
    assert len(row["radii"]["joint"]) == len(row["label_radii"]) == 3
    assert len(row["predicted"]) == len(row["predicted_hits"]) == 3


radius = st.one_of(st.floats(0), st.just(-np.inf))
quick = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=8, deadline=None)


def radii(count: int, *, falling: bool | None = None) -> st.SearchStrategy[np.ndarray]:
    """This many radii, in any order or sorted."""
    several = st.lists(radius, min_size=count, max_size=count)
    ordered = several if falling is None else several.map(lambda values: sorted(values, reverse=bool(falling)))
    return ordered.map(lambda values: np.array(values, dtype=np.float64))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_row_groups(tmp_path, monkeypatch, kind) -> None:
    """Claims that are written and read two images at a time are those of the whole; each is checked."""
    votes = votes_of_kind(tmp_path / "votes", **KINDS[kind])
    certificates = certify_votes(votes, config_of(votes), labels=source_of(votes))
    made = curves(certificates, GRID)
    monkeypatch.setattr(scores, "IMAGES_AT_A_TIME", 2)
    write_certificates(tmp_path / "c", certificates, made, radius=GRID, votes=votes)
    assert pq.ParquetFile(tmp_path / "c" / PARQUET).num_row_groups == -(-len(votes) // 2) > 1
    assert_same_certificates(read_certificates(tmp_path / "c").certificates, certificates)
    table = pq.read_table(tmp_path / "c" / PARQUET)
    for column, message in (("draws", r"image '.*': 0 draws"), ("id", "an image appears twice")):
        rows = table.to_pylist()
        rows[-1][column] = 0 if column == "draws" else rows[0]["id"]
        forge(tmp_path / "c" / PARQUET, table=type(table).from_pylist(rows, schema=table.schema))
        with pytest.raises(DataError, match=message):
            read_certificates(tmp_path / "c")


@quick
@given(
    data=st.data(),
    names=st.lists(st.text(st.characters(codec="utf-8"), max_size=5), min_size=20, max_size=20, unique=True),
)
def test_any_numbers_and_names(tmp_path, data, names) -> None:
    """Any radii and any label names read back exactly."""
    folder = tmp_path / "votes"
    shutil.rmtree(folder, ignore_errors=True)
    ranked = [np.array([[0, 1]] * 5), np.array([[1, 0]] * 5), np.array([[2, 0]] * 5)]
    votes = stored_votes(folder, ranked, [[0], [], [19, 4]], label_names=tuple(names))
    certificates = certify_votes(votes, CertifyConfig(TopK(k=2, k_prime=1)), methods=("joint",))
    made = curves(certificates, GRID)
    certificates = replace(
        certificates,
        radii={method: tuple(data.draw(radii(n, falling=True)) for n in (1, 0, 2)) for method in ("joint", "jia")},
        label_radii=tuple(data.draw(radii(n)) for n in (1, 0, 2)),
    )
    made += [replace(curve, method="jia") for curve in made]
    write_certificates(tmp_path / "certificates", certificates, made, radius=GRID, votes=votes, force=True)
    found = read_certificates(tmp_path / "certificates")
    assert_same_certificates(found.certificates, certificates)
    assert as_lists(found.labels) == as_lists(label_scores(certificates, GRID))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_of_votes(tmp_path, kind) -> None:
    """Both rules, fixed and adaptive draws, with and without labels."""
    votes = votes_of_kind(tmp_path / "votes", **KINDS[kind])
    config, source = config_of(votes), source_of(votes)
    certificates = certify_votes(
        votes, config, methods=("betting",) if votes.adaptive else ("independent", "joint"), labels=source
    )
    made = curves(certificates, GRID, bands=0.9)
    made += sweep(votes, config, {"alpha": [0.1]}, GRID, labels=source)
    write_certificates(tmp_path / "c", certificates, made, radius=GRID, votes=votes)
    found = read_certificates(tmp_path / "c")
    assert_same_certificates(found.certificates, certificates)
    assert_same_curves(found.curves, made)
    assert as_lists(found.labels) == as_lists(label_scores(certificates, GRID))
    stored = load_metadata(tmp_path / "c" / PARQUET)
    assert (stored["config"]["rule"], stored["labelled"]) == (votes.rule, source == "truth")
    columns = pq.read_table(tmp_path / "c" / PARQUET).column_names
    assert ("false_radii" in columns) == (votes.rule == "threshold")


@quick
@given(data=st.data())
def test_any_numbers_threshold(tmp_path, data) -> None:
    """Any floors and ceilings of the threshold rule read back exactly."""
    shutil.rmtree(tmp_path / "votes", ignore_errors=True)
    votes = votes_of_kind(tmp_path / "votes", images=3, labels=4, **KINDS["unlabelled threshold"])
    certificates = certify_votes(votes, CertifyConfig(Threshold(0.4)), labels="pilot")
    names, several = st.integers(0, 3), st.lists(st.integers(0, 3), unique=True, max_size=4).map(tuple)
    labels = (tuple(data.draw(st.permutations(range(4)))), *(data.draw(several) for _ in range(2)))
    methods = data.draw(st.lists(st.sampled_from(["joint", "independent"]), min_size=1, unique=True))
    ceilings = [radii(4 - len(own), falling=False) for own in labels]
    rule = Threshold(data.draw(st.floats(1e-300, 0.999)))
    drawn = replace(
        certificates,
        config=CertifyConfig(rule, data.draw(st.floats(1e-200, 0.999)), 200),
        labels=labels,
        radii={method: tuple(data.draw(radii(len(own), falling=True)) for own in labels) for method in methods},
        false_radii={method: tuple(data.draw(each) for each in ceilings) for method in methods},
        label_radii=tuple(data.draw(radii(len(own))) for own in labels),
        predicted=tuple((data.draw(names),) for _ in range(3)),
        predicted_hits=tuple((data.draw(st.integers(1, draws)),) for draws in certificates.draws),
    )
    counted = {"images": sum(map(bool, labels)), "without_labels": sum(not own for own in labels)}
    made = [
        replace(curve, method=method, config=drawn.config, scores=replace(curve.scores, **counted))
        for curve in curves(certificates, GRID)
        for method in methods
    ]
    write_certificates(tmp_path / "certificates", drawn, made, radius=GRID, votes=votes, force=True)
    assert_same_certificates(read_certificates(tmp_path / "certificates").certificates, drawn)


# ----------------------------------------------------------------------------------------------- what is refused


def test_replacement_needs_force(certified, votes) -> None:
    """Certificates are replaced only with force, and other files of the folder stay."""
    (certified / "report.html").write_text("mine")
    with pytest.raises(InvalidInputError, match="holds certificates already, made with other settings; --force"):
        put(certified, votes, NEW)
    assert k_of(certified) == 3
    put(certified, votes, NEW, force=True)
    assert k_of(certified) == 4
    assert {path.name for path in certified.iterdir()} == {*FILES, "report.html"}


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("name", [PARQUET, "curves.csv", "labels.csv"])
def test_foreign_files(tmp_path, votes, name, force) -> None:
    """A file of these names that multiguard did not write is never replaced."""
    (tmp_path / name).write_text("mine")
    with pytest.raises(InvalidInputError, match=f"{name} is not as multiguard wrote it, so it is not replaced"):
        put(tmp_path, votes, OLD, force=force)
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


HARMS = [edited, truncated, emptied, swapped, removed]


@pytest.mark.parametrize("harm", HARMS)
def test_damaged_parquet(certified, harm) -> None:
    """A damaged certificates.parquet is refused with its name, in one line."""
    harm(certified / PARQUET)
    with pytest.raises(DataError, match=r"certificates\.parquet") as refusal:
        read_certificates(certified)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", ["curves.csv", "labels.csv"])
@pytest.mark.parametrize("harm", HARMS)
def test_damaged_copies(certified, written, name, harm) -> None:
    """The CSV files are copies: nothing that is read depends on them."""
    harm(certified / name)
    found, expected = read_certificates(certified), read_certificates(written)
    assert as_lists(found) == as_lists(expected)


def test_every_flipped_byte(certified, written) -> None:
    """Whichever byte of the file is flipped, it is refused before anything is parsed."""
    content = (written / PARQUET).read_bytes()
    for position in range(0, len(content), max(1, len(content) // 150)):
        flipped = bytes([content[position] ^ (1 << position % 8)])
        (certified / PARQUET).write_bytes(content[:position] + flipped + content[position + 1 :])
        with pytest.raises(DataError, match="checksum"):
            read_certificates(certified)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("config", {"rule": "top-k", "k": 3, "k_prime": 2, "alpha": 1e-9, "n": 200}),
        ("labelled", False),
        ("curves", ""),
        ("label_radius", [0.25]),
        ("failures", [{"image_id": "x", "reason": "y"}]),
    ],
)
def test_edited_metadata(certified, field, value) -> None:
    """A claim improved by hand is refused."""
    stored = load_metadata(certified / PARQUET)
    assert stored[field] != value
    edit_metadata(certified / PARQUET, {**stored, field: value})
    with pytest.raises(DataError, match=r"certificates\.parquet cannot be used: it was edited"):
        read_certificates(certified)


def test_edited_rows(certified) -> None:
    """Radii improved by hand are refused, though the metadata is intact."""
    table = pq.read_table(certified / PARQUET)
    rows = table.to_pylist()
    rows[3]["draws"] -= 1
    pq.write_table(type(table).from_pylist(rows, schema=table.schema), certified / PARQUET, compression="zstd")
    with pytest.raises(DataError, match="it was edited or damaged"):
        read_certificates(certified)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("radii", {"joint": [0.1, 0.2, 0.3], "independent": [0.3, 0.2, 0.1]}, "not in order"),
        ("radii", {"joint": [0.3, 0.2], "independent": [0.3, 0.2, 0.1]}, "expected 3 radii"),
        ("label_radii", [0.1, -0.2, 0.3], "none of them negative"),
        ("label_radii", [0.1, float("nan"), 0.3], "none of them negative"),
        ("draws", 201, "201 draws, expected 1 to 200"),
        ("predicted_hits", [300, 2, 1], "one number of hits each"),
        ("predicted_hits", [2, 1, 0], "one number of hits each"),
        ("labels", ["label 1", "label 1", "label 2"], "a label appears twice"),
        ("id", "image-2", "an image appears twice"),
    ],
)
def test_forged_claims(certified, column, value, message) -> None:
    """Claims that no proof has the form of are refused, even below a checksum that fits."""
    table = pq.read_table(certified / PARQUET)
    rows = table.to_pylist()
    rows[3][column] = rows[2]["id"] if column == "id" else value
    forge(certified / PARQUET, table=type(table).from_pylist(rows, schema=table.schema))
    with pytest.raises(DataError, match=message):
        read_certificates(certified)


def test_other_format(certified) -> None:
    """A file of another version, or of somebody else, is refused."""
    forge(certified / PARQUET, metadata={**load_metadata(certified / PARQUET), "version": 1})
    with pytest.raises(DataError, match=r"version 1; .* version 8"):
        read_certificates(certified)
    pq.write_table(pq.read_table(certified / PARQUET).replace_schema_metadata(None), certified / PARQUET)
    with pytest.raises(DataError, match=r"it holds no checksum, or more than one.*; certify the votes again"):
        read_certificates(certified)


@pytest.mark.parametrize("labels", [["label 1"], ["label 1"] * 3, ["label 1", "label 2", "no such label"]])
def test_forged_bare_labels(certified, labels) -> None:
    """What the base classifier returns without noise has the form that the rule gives it."""
    path = certified / PARQUET
    table = pq.read_table(path)
    forged = pa.array([labels, *[None] * (len(table) - 1)], pa.list_(pa.string()))
    forge(path, table=table.set_column(table.schema.get_field_index("bare"), "bare", forged))
    with pytest.raises(DataError, match="cannot be used"):
        read_certificates(certified)


def test_not_a_certificates_folder(tmp_path, votes) -> None:
    """A folder without certificates, and a file in place of a folder."""
    with pytest.raises(DataError, match=r"not a certificates folder: it has no certificates\.parquet"):
        read_certificates(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInputError, match="file"):
        put(tmp_path / "file", votes, OLD)


def test_certificates_of_other_votes(tmp_path, votes) -> None:
    """Certificates are written only with the votes that they can be made from."""
    certificates = certify_votes(votes, OLD)
    for name, other in (
        ("images", random_votes(tmp_path / "fewer", images=10)),
        ("noise", random_votes(tmp_path / "sigma", sigma=0.25)),
    ):
        with pytest.raises(InvalidInputError, match=name):
            write_certificates(tmp_path / "c", certificates, [], radius=GRID, votes=other)
    threshold = votes_of_kind(tmp_path / "sets", images=11, labels=20, **KINDS["unlabelled threshold"])
    with pytest.raises(InvalidInputError, match="of the top-k rule, these votes of the threshold"):
        write_certificates(tmp_path / "c", replace(certificates, labelled=False), [], radius=GRID, votes=threshold)
    adaptive = votes_of_kind(tmp_path / "adaptive", images=11, labels=20, **KINDS["adaptive unlabelled"])
    with pytest.raises(InvalidInputError, match="images"):
        write_certificates(tmp_path / "c", replace(certificates, labelled=False), [], radius=GRID, votes=adaptive)
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda curve: replace(curve, noise=Gaussian(0.25)),
            "the noise is gaussian:0.25, in the certificates gaussian:0.5",
        ),
        (lambda curve: replace(curve, config=CertifyConfig(Threshold(0.5))), "the rule is threshold"),
        (lambda curve: replace(curve, failed=2), "the number of failed images is 2, in the certificates 0"),
        (lambda curve: replace(curve, scores=replace(curve.scores, images=3)), "the number of images is 6"),
        (lambda curve: replace(curve, config=NEW), "curve of the method coupled .mean. .* is missing"),
        (lambda curve: replace(curve, method="jia"), "curve of the method coupled .mean."),
        (
            lambda curve: replace(curve, scores=replace(curve.scores, images=9, without_labels=2)),
            "the number of images with labels is 9, in the certificates 8",
        ),
    ],
)
def test_curves_of_other_certificates(tmp_path, votes, spoil, message) -> None:
    """Curves are written only with the certificates that they can be made from."""
    certificates = certify_votes(votes, OLD)
    first, *others = curves(certificates, GRID)
    with pytest.raises(InvalidInputError, match=message):
        write_certificates(tmp_path / "c", certificates, [spoil(first), *others], radius=GRID, votes=votes)
    assert not (tmp_path / "c").exists()


def test_repeated_label_names(tmp_path) -> None:
    """Two labels of one name are refused."""
    names = ("cat", "cat", *(f"label {i}" for i in range(18)))
    votes = random_votes(tmp_path / "votes", label_names=names)
    with pytest.raises(InvalidInputError, match="2 labels are named 'cat'"):
        put(tmp_path / "c", votes, OLD)


def test_source_is_json(certified, votes) -> None:
    """A source that JSON cannot hold is refused, and the old files stay."""
    for value in (object(), float("nan")):
        with pytest.raises(InvalidInputError, match="plain JSON"):
            put(certified, votes, NEW, source={"data": value}, force=True)
    assert k_of(certified) == 3
    assert {path.name for path in certified.iterdir()} == FILES


def test_too_many_curves(certified, votes, monkeypatch) -> None:
    """Metadata that no Parquet reader would accept is refused before anything is replaced."""
    monkeypatch.setattr("multiguard.results.table_file._MOST_METADATA", 1000)
    with pytest.raises(InvalidInputError, match="use fewer radii"):
        put(certified, votes, NEW, force=True)
    assert k_of(certified) == 3


# ------------------------------------------------------------------------------------- whatever is killed when


@pytest.mark.parametrize("failing", ["disk", "write_curves", "write_labels"])
def test_failed_write(certified, votes, monkeypatch, failing) -> None:
    """A full disk leaves every old file as it was, whichever file does not fit."""
    before = {name: (certified / name).read_bytes() for name in FILES}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if failing == "disk":
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    else:
        monkeypatch.setattr(certificate_files, failing, no_space)
    try:
        with pytest.raises(OSError, match="File too large"):
            put(certified, votes, NEW, force=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {path.name for path in certified.iterdir()} == FILES
    assert {name: (certified / name).read_bytes() for name in FILES} == before


def no_space(path, *_) -> None:
    path.touch()
    raise OSError("File too large")


PRELUDE = """
import os, sys
import pyarrow.parquet
import multiguard.results.certificate_files
from tests.results.test_certificate_files import NEW, OLD, k_of, make, put
from multiguard.results import read_certificates, read_curves
from multiguard.votes import read_votes
from pathlib import Path
votes, folder = read_votes(sys.argv[1]), Path(sys.argv[2])
make(votes, OLD), make(votes, NEW)
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
    k = k_of(folder)
    copy = folder / "curves.csv"
    assert not copy.exists() or {curve.config.rule.k for curve in read_curves(copy)} == {k}
    return k

moment, ended, found = 1, 9, None
while ended == 9:
    if found != 3:  # else the next writer begins with what the killed one left
        assert child(lambda: put(folder, votes, OLD, force=True) or 0) == 0
        assert child(read) == 3
    ended = child(lambda: write_until(moment))
    found = child(read)
    print(found, end=" ")
    moment += 1
assert ended == 0
"""


def run(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PRELUDE + code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))


@pytest.mark.soak  # tests of the command kill it at every file operation
def test_writer_killed_at_any_moment(tmp_path, votes_folder) -> None:
    """The old certificates are read, then the new ones; no CSV file lies beside certificates of another config."""
    killed = run(KILLED, votes_folder, tmp_path)
    output, errors = killed.communicate(timeout=300)
    assert killed.returncode == 0, errors
    found = output.split()
    assert set(found) == {"3", "4"}
    assert found == sorted(found)
    assert len(found) > 12
    assert {path.name for path in tmp_path.iterdir()} == FILES


def test_reader_beside_a_writer(certified, votes, votes_folder) -> None:
    """A reader finds one set of results or the other while they are replaced again and again."""
    loop = "while True:\n    put(folder, votes, NEW, force=True)\n    put(folder, votes, OLD, force=True)"
    writer = run(loop, votes_folder, certified)
    try:
        seen = set()
        for reading in range(5000):
            found = read_certificates(certified)
            rule = found.certificates.config.rule
            assert all(curve.config == found.certificates.config for curve in found.curves)
            assert max(map(len, found.certificates.predicted)) == rule.k
            seen.add(rule.k)
            if len(seen) == 2 and reading > 100:
                break
    finally:
        writer.kill()
        writer.communicate()
    assert seen == {3, 4}
    put(certified, votes, NEW, force=True)
    assert k_of(certified) == 4
    assert {path.name for path in certified.iterdir()} == FILES
