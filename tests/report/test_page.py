"""The page as a file: self-contained, escaped, within its size, honest about what is missing."""

import base64
import hashlib
import io
import json
import math
import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.report.studies import NoiseImages, make_run

from multiguard.certify import certified_size
from multiguard.data import Sample
from multiguard.errors import DataError, InvalidInputError
from multiguard.evaluate import Setting
from multiguard.report import Study, write_page
from multiguard.report.page.thumbnails import make_thumbnail
from multiguard.version import __version__


def stored_data(text: str) -> dict:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def page_text(study: Study, path: Path, **options) -> str:
    write_page(study, path, **options)
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def text(study: Study, tmp_path_factory) -> str:
    return page_text(study, tmp_path_factory.mktemp("page") / "new" / "report.html")


def test_the_data_are_the_curves_and_the_certificates(study: Study, text: str) -> None:
    data, certificates = stored_data(text), study.main.certificates
    methods = data["families"][0]
    for line, method in zip(methods["lines"], certificates.methods, strict=True):
        for averaging in ("mean", "pooled"):
            assert line[averaging]["recall"] == study.main_curve(method, averaging).scores.recall.tolist()
    assert len(data["images"]) == len(certificates.ids)
    for image in data["images"]:
        place = certificates.ids.index(image["id"])
        for method in certificates.methods:
            stored = [float(radius) for radius in image["radii"][method]]
            assert stored == certificates.radii[method][place].tolist()
        assert image["labels"] == list(certificates.labels[place])
        assert image["predicted"] == list(certificates.predicted[place])


def test_images_come_weakest_first(study: Study, text: str) -> None:
    certificates, found = study.main.certificates, []
    for image in stored_data(text)["images"]:
        place = certificates.ids.index(image["id"])
        true, radii = len(certificates.labels[place]), certificates.radii["joint"][place]
        found.append(int(certified_size(radii, 0.5)) / true if true else math.inf)
    assert found == sorted(found)


def test_a_part_of_the_gallery_is_its_weakest(study: Study, text: str, tmp_path: Path) -> None:
    part = page_text(study, tmp_path / "part.html", gallery=5)
    assert stored_data(part)["images"] == stored_data(text)["images"][:5]
    assert "Only the 5 weakest of 12 images" in part


def test_a_negative_gallery_is_refused(study: Study, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="gallery is -1"):
        write_page(study, tmp_path / "report.html", gallery=-1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        ("digits/test?seed=0[images=12,seed=3]", "digits/test, 12 random images, seed 3"),
        ("coco/val2017[images=12,seed=0]", "coco/val2017, 12 random images, seed 0"),
        ("coco/val2017[images=9,seed=0]", "12 of coco/val2017[images=9,seed=0]"),
        ("digits/test?seed=5[images=12,seed=3]", "12 of digits/test?seed=5[images=12,seed=3]"),
        ("a[b][images=12,seed=0]", "12 of a[b][images=12,seed=0]"),
        ("mine", "12 of mine"),
    ],
)
def test_the_images_are_told_in_words(tmp_path: Path, dataset: str, words: str) -> None:
    written = page_text(Study(make_run(tmp_path, dataset=dataset)), tmp_path / "report.html")
    assert f"<dt>images</dt><dd>{words}</dd>" in written


def test_joint_beside_other_methods_is_to_be_chosen_beforehand(study: Study, text: str, tmp_path: Path) -> None:
    told = "joint divides α differently from the others, so that at some radius another method may show a little more"
    assert told in text
    assert told not in page_text(Study(study.beside["low noise"]), tmp_path / "alone.html")


def test_infinite_radii_survive(tmp_path: Path) -> None:
    main = make_run(tmp_path)
    endless = [np.full_like(radii, np.inf) for radii in main.certificates.radii["joint"]]
    certificates = replace(main.certificates, radii={"joint": tuple(endless)})
    stored = stored_data(page_text(Study(replace(main, certificates=certificates)), tmp_path / "report.html"))
    assert {radius for image in stored["images"] for radius in image["radii"]["joint"]} == {"inf"}


def test_only_its_own_scripts_may_run_and_nothing_may_load(text: str) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy[1].replace("&#39;", "'").split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert rules["script-src"] == " ".join(f"'sha256-{digest}'" for digest in digests)
    assert not re.search(r"<(?:link|iframe|object|embed)\b|<(?:script|img)[^>]*\bsrc=", text.replace("\n", " ")[:4000])


def test_hostile_names_never_leave_their_place(hostile_study: Study, tmp_path: Path) -> None:
    text = page_text(hostile_study, tmp_path / "report.html")
    outside = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert "<script>alert" not in outside
    assert "onerror=alert(7)>" not in outside
    assert "<svg onload" not in outside
    assert stored_data(text)["labelNames"] == list(hostile_study.main.certificates.label_names)


def test_names_that_are_no_text_are_written_all_the_same(tmp_path: Path) -> None:
    study = replace(Study(make_run(tmp_path)), title="file \udcff name", commands=["rm \udcfe"])
    assert "file ? name" in page_text(study, tmp_path / "report.html")


def test_left_out_images_are_counted_and_explained(text: str) -> None:
    words = re.sub(r"<[^>]*>", "", text)
    assert "9 images are counted; 3 are left out, because an image without a true label has no recall." in words


@pytest.mark.parametrize(
    "words",
    [
        "ℓ₂-norm",
        "from 0 to 1",
        "smoothed classifier",
        "Other kinds of change",
        "point by point",
        "ground truth",
        "99.9 %",
    ],
)
def test_the_promise_is_said_in_words(text: str, words: str) -> None:
    assert words in text.split('id="promise"')[1].split("</section>")[0]


def test_a_tiny_alpha_is_not_rounded_away(tmp_path: Path) -> None:
    text = page_text(Study(make_run(tmp_path, setting=Setting(k=5, k_prime=2, alpha=1e-12))), tmp_path / "report.html")
    promise = text.split('id="promise"')[1].split("</section>")[0]
    assert "with probability at least 99.9999999999 %" in promise
    assert "of 9 images, at most 9e-12 in expectation" in promise


def test_the_radius_before_any_script_is_the_one_asked_for(tmp_path: Path) -> None:
    step = 0.0471234567890123
    text = page_text(Study(make_run(tmp_path, step=step)), tmp_path / "report.html")
    radius = 11 * Decimal(repr(step))
    assert re.search(r'<output id="radius-shown"[^>]*>([^<]*)<', text)[1] == repr(float(radius))


def test_origin_and_commands_are_there(study: Study, text: str) -> None:
    origin = text.split('id="origin"')[1]
    assert "multiguard vote\nmultiguard certify" in origin
    assert study.main.votes_hash in origin
    assert f'<th scope="row">certified_with</th><td>{__version__}</td>' in origin
    assert '<th scope="row">label_names</th><td>20 in all</td>' in origin


class SomeImages(NoiseImages):
    """Images of which one is spoilt."""

    def __getitem__(self, index: int, /) -> Sample:
        if index == 1:
            raise DataError("spoilt")
        return super().__getitem__(index)


def test_images_that_are_not_there_are_said(study: Study, text: str, tmp_path: Path) -> None:
    ids, told = study.main.certificates.ids, []
    some = page_text(study, tmp_path / "some.html", images=SomeImages(ids[:9]), progress=lambda *at: told.append(at))
    assert told == [(done, 12) for done in range(1, 13)]
    assert "4 of them could not be found or read" in some
    without = {image["id"] for image in stored_data(some)["images"] if image["thumbnail"] is None}
    assert without == {ids[1], *ids[9:]}
    assert "The images themselves were not at hand" in text


@pytest.mark.parametrize(
    ("height", "width", "shown"), [(224, 224, (128, 128)), (400, 200, (64, 128)), (32, 32, (32, 32))]
)
@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_a_thumbnail_is_the_image_made_small(height: int, width: int, shown: tuple[int, int], kind: type) -> None:
    image = np.zeros((3, height, width), dtype=kind)
    image[0] = 255 if kind is np.uint8 else 1
    made = make_thumbnail(Sample("red", image, ()))
    image = Image.open(io.BytesIO(base64.b64decode(made.uri.partition(",")[2])))
    assert image.size == shown
    assert (made.height, made.width) == (height, width)
    assert np.abs(np.asarray(image.convert("RGB")).mean(axis=(0, 1)) - [255, 0, 0]).max() < 8


def test_five_hundred_images_stay_under_25_megabytes(tmp_path: Path) -> None:
    """Random pixels are the hardest to compress: photographs take less."""
    study = Study(make_run(tmp_path / "run", images=500, draws=30, methods=("joint", "paper")))
    write_page(study, tmp_path / "report.html", images=NoiseImages(study.main.certificates.ids))
    assert (tmp_path / "report.html").stat().st_size < 25e6


def test_the_same_study_gives_the_same_page(study: Study, text: str, tmp_path: Path) -> None:
    assert page_text(study, tmp_path / "again.html") == text


def test_sections_without_data_are_not_there(tmp_path: Path) -> None:
    """A run beside it that was proved with another method only has no curve to compare."""
    study = Study(make_run(tmp_path / "a"), {"b": make_run(tmp_path / "b", sigma=0.25, methods=("paper",))})
    text = page_text(study, tmp_path / "report.html")
    assert not re.search(r'id="(?:sweeps|runs)"|href="#(?:sweeps|runs)"', text)
