"""The page as a file: self-contained, escaped, within its size, honest about what is missing."""

import base64
import hashlib
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.report.studies import ADAPTIVE, THRESHOLD, UNLABELLED, NoiseImages, changed, make_run

from multiguard.data import Sample
from multiguard.errors import DataError, InvalidInputError
from multiguard.evaluate import CertifyConfig
from multiguard.report import Study, page, write_page
from multiguard.report.thumbnails import MOST_ILLUSTRATED
from multiguard.report.words import dataset_words, run_title, shared_command
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


def test_data(study: Study, text: str) -> None:
    """The data are those of the curves and the certificates."""
    data, certificates = stored_data(text), study.main.certificates
    methods = data["families"][0]
    for line, method in zip(methods["lines"], certificates.methods, strict=True):
        for averaging in ("mean", "pooled"):
            assert line[averaging]["recall"] == study.main_curve(method, averaging).scores.recall.tolist()
    assert len(data["images"]) == len(certificates.ids)
    for image in data["images"]:
        index = certificates.ids.index(image["id"])
        for method in certificates.methods:
            stored = [float(radius) for radius in image["radii"][method]]
            assert stored == certificates.radii[method][index].tolist()
        assert image["labels"] == list(certificates.labels[index])
        assert image["predicted"] == list(certificates.predicted[index])


def test_partial_gallery(study: Study, text: str, tmp_path: Path) -> None:
    """A partial gallery has the weakest images."""
    part = page_text(study, tmp_path / "part.html", gallery=5)
    assert stored_data(part)["images"] == stored_data(text)["images"][:5]
    assert "This file has only the 5 weakest of 12 images" in part
    with pytest.raises(InvalidInputError, match="gallery is -1"):
        write_page(study, tmp_path / "report.html", gallery=-1)


def test_many_images(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many images the page has a stated sample: the weakest, and some of the others."""
    monkeypatch.setattr(page, "_MOST_IMAGES", 5)
    monkeypatch.setattr(page, "_WEAKEST", 3)
    shown = [image["id"] for image in stored_data(page_text(study, tmp_path / "many.html"))["images"]]
    weakest = [image["id"] for image in stored_data(page_text(study, tmp_path / "all.html", gallery=100))["images"]]
    total = len(weakest)
    assert shown[:3] == weakest[:3]
    assert (len(shown), len(set(shown)), set(shown) <= set(weakest)) == (5, 5, True)
    text = " ".join((tmp_path / "many.html").read_text().split())
    assert f"only 5 of {total} images: the 3 weakest, and 2 of the others at random" in text


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        ("digits test (seed 0), 12 random images (seed 3)", "digits test, 12 random images (seed 3)"),
        ("coco val2017, 12 random images (seed 0)", "coco val2017, 12 random images (seed 0)"),
        ("coco val2017, 9 random images (seed 0)", "12 of coco val2017, 9 random images (seed 0)"),
        ("digits (seed 5), 12 random images (seed 3)", "12 of digits (seed 5), 12 random images (seed 3)"),
        ("mine", "12 of mine"),
    ],
)
def test_dataset_words(dataset: str, words: str) -> None:
    """A random sample of a dataset is described in words."""
    assert dataset_words(dataset, 12) == words


def test_infinite_radii(tmp_path: Path) -> None:
    """Infinite radii survive in JSON."""
    main = make_run(tmp_path)
    endless = [np.full_like(radii, np.inf) for radii in main.certificates.radii["joint"]]
    stored = stored_data(page_text(Study(changed(main, radii={"joint": endless})), tmp_path / "report.html"))
    assert {radius for image in stored["images"] for radius in image["radii"]["joint"]} == {"inf"}


def test_content_policy(text: str) -> None:
    """Only the scripts of the page may run, and nothing may be loaded."""
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy[1].replace("&#39;", "'").split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert rules["script-src"] == " ".join(f"'sha256-{digest}'" for digest in digests)
    assert not re.search(r"<(?:link|iframe|object|embed)\b|<(?:script|img)[^>]*\bsrc=", text.replace("\n", " ")[:4000])


def test_hostile_names(hostile_study: Study, tmp_path: Path) -> None:
    """Hostile names never become markup."""
    text = page_text(hostile_study, tmp_path / "report.html")
    outside = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert "<script>alert" not in outside
    assert "onerror=alert(7)>" not in outside
    assert "<svg onload" not in outside
    assert stored_data(text)["labelNames"] == list(hostile_study.main.certificates.label_names)


def test_surrogates(tmp_path: Path) -> None:
    """Names that are no valid text are written all the same."""
    study = replace(Study(make_run(tmp_path)), title="file \udcff name", commands=["rm \udcfe"])
    assert "file ? name" in page_text(study, tmp_path / "report.html")


def test_left_out_images(text: str) -> None:
    """Images that are left out are counted and explained."""
    words = re.sub(r"<[^>]*>", "", text)
    sentence = "9 images are averaged; 3 are left out because recall is undefined for an image without true labels."
    assert f"{sentence} What they return counts in pooled precision and F1." in words


def test_tiny_alpha(tmp_path: Path) -> None:
    """A tiny alpha is not rounded away."""
    text = page_text(
        Study(make_run(tmp_path, config=CertifyConfig(k=5, k_prime=2, alpha=1e-12))), tmp_path / "report.html"
    )
    guarantee = text.split('id="guarantee"')[1].split("</section>")[0]
    assert "with probability at least 99.9999999999 %" in guarantee
    assert "of 9 images, at most 9e-12 in expectation" in guarantee


def test_names_without_folders(study: Study, tmp_path: Path) -> None:
    """The page has no absolute path, and calls the model by the name that it was opened by, if that is no path."""
    source = {"data": {"root": "/home/me/coco"}, "model": {"spec": "coco"}, "command": "multiguard vote --out /a/b"}
    named = replace(study.main, source=source)
    text = page_text(Study(named, title=run_title(named)), tmp_path / "report.html")
    assert "Certified robustness of coco on" in text
    assert "<dt>base classifier</dt><dd>coco</dd>" in text
    assert '<th scope="row">data.root</th><td>coco</td>' in text
    assert "multiguard vote --out b\n" in text
    assert "/home/me" not in text
    unnamed = replace(study.main, source={"model": {"spec": "/home/me/model"}})
    assert run_title(unnamed).startswith("Certified robustness of linear on")
    assert shared_command("multiguard 'x /home/me/y") == "multiguard 'x y"


def test_provenance(study: Study, text: str) -> None:
    """Provenance, commands and how to verify are on the page."""
    verify = text.split('id="verify"')[1].split("</section>")[0]
    assert f"sha256sum certificates.parquet   # {study.main.certificates_hash}\nmultiguard verify" in verify
    provenance = text.split('id="provenance"')[1]
    assert "multiguard vote\nmultiguard certify" in provenance
    for run in (study.main, *study.others.values()):
        assert run.votes_hash in provenance
        assert run.certificates_hash in provenance
    assert "<dt>images</dt><dd>12 of " in text
    assert f'<th scope="row">certified_with</th><td>{__version__}</td>' in provenance
    assert '<th scope="row">label_names</th><td>20 in all</td>' in provenance


class SomeImages(NoiseImages):
    """Images of which one is broken."""

    def __getitem__(self, index: int, /) -> Sample:
        if index == 1:
            raise DataError("broken")
        return super().__getitem__(index)


def test_missing_images(study: Study, text: str, tmp_path: Path) -> None:
    """Missing and broken images are counted and shown without pixels."""
    ids, calls = study.main.certificates.ids, []
    some = page_text(study, tmp_path / "some.html", images=SomeImages(ids[:9]), progress=lambda *at: calls.append(at))
    assert calls == [(done, 12) for done in range(1, 13)]
    assert "4 could not be found or read and are shown without pixels" in some
    without = {image["id"] for image in stored_data(some)["images"] if image["thumbnail"] is None}
    assert without == {ids[1], *ids[9:]}
    assert "This page was made without images" in text


def test_page_size(study: Study, text: str, tmp_path: Path) -> None:
    """500 images stay under 25 MB, by the size of a few; random pixels compress worse than photographs."""
    ids = study.main.certificates.ids
    with_images = page_text(study, tmp_path / "report.html", images=NoiseImages(ids))
    looks = sum(len(uri) for image in stored_data(with_images)["images"] for uri in image["looks"].values()) / len(ids)
    per_image = (len(with_images) - len(text)) / len(ids) - looks
    whole = len(text) + 500 * (per_image + len(stored_images(text)) / len(ids)) + MOST_ILLUSTRATED * looks
    assert looks > 1000
    assert whole < 25e6


def stored_images(text: str) -> str:
    return json.dumps(stored_data(text)["images"])


def test_ceilings_end(tmp_path: Path) -> None:
    """Ceilings end with the first that reaches the farthest radius."""
    main = make_run(tmp_path, images=3, **THRESHOLD)
    radii = ([-math.inf, 0.5, 1.5, 2.0], [2.0, 3.0], [-math.inf, 0.1])
    data = stored_data(page_text(Study(changed(main, false_radii={"joint": radii})), tmp_path / "report.html"))
    found = {image["id"]: image["ceilings"]["joint"] for image in data["images"]}
    assert data["grid"][-1] == 1.5
    assert list(map(found.get, main.certificates.ids)) == [["-inf", 0.5, 1.5], [2.0], ["-inf", 0.1]]


@pytest.mark.parametrize(
    ("kind", "words", "absent"),
    [
        (
            {},
            ["among the 5 that the smoothed classifier returns", "ℓ₂-norm", "Other perturbations", "99.9 %"],
            ["Threshold rule", "pilot", "Early stopping", "Jia"],
        ),
        ({"methods": ("joint", "jia")}, ["With the method of Jia et al. the claim for each"], []),
        (THRESHOLD, ["at least a fraction <i>t</i> = 0.3", "others", "Ceilings are rounded up"], ["pilot", "Jia"]),
        (UNLABELLED, ["60 pilot draws", "Unconfirmed labels", "There is no ground truth"], ["Jia"]),
        (ADAPTIVE, ["the guarantee holds wherever an image stops"], ["pilot"]),
    ],
)
def test_guarantee_by_kind(kind: dict, words: list[str], absent: list[str], tmp_path: Path) -> None:
    """The guarantee fits the rule, the labels and the draws."""
    text = page_text(Study(make_run(tmp_path, **kind)), tmp_path / "report.html")
    guarantee = text.split('id="guarantee"')[1].split("</section>")[0]
    assert all(each in guarantee for each in words)
    assert not [each for each in absent if each in guarantee]
