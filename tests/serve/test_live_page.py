"""The page in a real browser: upload, live answer, slider, attack, errors, phone, keyboard, camera."""

import re

import pytest
from tests.report.browsing import settle
from tests.serve.colours import encode


@pytest.fixture(scope="module")
def opened(browser, running):
    """The page at a width, with everything that goes wrong in it."""
    contexts = []

    def visit(width=1280, scheme="light"):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.problems = []
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("console", lambda message: page.problems.append(message.text))
        page.on("request", lambda request: page.problems.append(request.url) if _is_foreign(request.url) else None)
        page.goto(running.address)
        return page

    def _is_foreign(url):
        return not url.startswith((running.address, "data:", "blob:"))

    yield visit
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def page(opened):
    """One page for the tests that follow each other on it."""
    return opened()


def choose(page, content: bytes, name="photo.png") -> None:
    page.set_input_files("#file", {"name": name, "mimeType": "image/png", "buffer": content})


def finish(page) -> None:
    page.wait_for_selector("#more:not([disabled])", timeout=30_000)


def row(page, label: str):
    return page.locator(f"#labels tr[data-label={label}]")


def slide_to(page, radius: float) -> None:
    page.locator("#radius").evaluate(
        "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input', { bubbles: true })); }",
        round(radius / 0.05),
    )
    settle(page)


def test_upload(page, running):
    """A chosen photo is predicted live: copies flicker by, bars move, labels turn from unconfirmed to a radius."""
    assert page.locator("#live").is_hidden()
    choose(page, encode())
    row(page, "red").wait_for()
    page.wait_for_selector("#copy[src^='data:image/png']")
    finish(page)
    assert page.locator("#draws").inner_text() == "200"
    assert re.fullmatch(r"stays up to \d\.\d\d", row(page, "red").locator(".value").inner_text())
    assert "done: 200 draws" in page.locator("#status").inner_text()
    assert "Seed of the noise" in page.locator("#seed-words").inner_text()
    assert page.problems == []


def test_slider(page, running):
    """The slider says which labels are proved at its radius: those whose radius reaches it, and no others."""
    shown = float(row(page, "red").locator(".value").inner_text().split()[-1])
    for radius in (0.0, 0.2, 0.5, 1.5):
        slide_to(page, radius)
        holds = "holds" in (row(page, "red").get_attribute("class") or "")
        assert holds == (shown >= radius)
        assert float(page.locator("#radius-shown").inner_text()) == pytest.approx(radius)
        statement = page.locator("#statement").inner_text()
        assert ("red" in statement) == holds
        assert holds or "No label is proved" in statement
    assert page.locator("#count").inner_text() == "0 of 2"


@pytest.mark.parametrize(("radius", "outcome"), [(0.1, "No label changed."), (1.5, "It lost")])
def test_attack(page, radius, outcome):
    """The attack shows original, perturbation with its factor and result of both classifiers, also where it fails."""
    slide_to(page, radius)
    page.click("#attack-it")
    page.wait_for_selector("[data-part=smoothed]", timeout=30_000)
    finish(page)
    for part in ("bare", "smoothed"):
        shown = page.locator(f"[data-part={part}]")
        assert shown.locator("img").count() == 3
        captions = shown.locator("figcaption").all_inner_texts()
        assert (captions[0], captions[2]) == ("original", "result")
        norm = float(re.fullmatch(r"perturbation . [\d.]+, l2-norm (\d\.\d+)", captions[1])[1])
        assert 0 <= norm <= radius  # 0 where no perturbation was better than none
    assert outcome in page.locator("[data-part=bare] .outcome").inner_text()
    kept = page.locator("[data-part=smoothed] .outcome").inner_text()
    assert ("proved at this R (✓) stayed" in kept) == (radius < 1)
    assert page.problems == []


def test_errors(page, running):
    """What cannot be used is said in one line, and the next photo works."""
    for content, words in ((b"no image", "not a readable image"), (bytes(300_000), "at most")):
        choose(page, content)
        page.wait_for_selector("#error:not([hidden])")
        page.locator("#error", has_text=words).wait_for()
    slide_to(page, 0)
    choose(page, encode((20, 40, 240)))
    finish(page)
    assert page.locator("#error").is_hidden()
    assert "blue" in page.locator("#statement").inner_text()
    slide_to(page, 0)
    page.click("#attack-it")
    page.locator("#error", has_text="move the slider").wait_for()
    page.problems[:] = [each for each in page.problems if "422" not in each]  # the browser reports the refusal
    assert page.problems == []


def test_stop(page):
    """Stop ends the draws with what is proved by then."""
    page.route("**/api/predict", lambda route: route.continue_(url=f"{route.request.url}?draws=1000000"))
    choose(page, encode())
    page.wait_for_selector("#labels .holds, #labels .unproved")
    page.click("#stop")
    finish(page)
    page.unroute("**/api/predict")
    assert "stopped" in page.locator("#status").inner_text()
    assert "stays up to" in row(page, "red").locator(".value").inner_text()


def test_stop_attack(page, running):
    """An attack can be stopped, and ends on the server, too."""
    slide_to(page, 0.5)
    page.route("**/attack?*", lambda route: None)  # it never begins
    page.click("#attack-it")
    page.click("#stop")
    page.unroute("**/attack?*")
    finish(page)
    assert page.locator("#attack-status").inner_text() == "stopped"


def test_left_page(opened, running):
    """A page that is closed midway ends its work."""
    page = opened()
    page.route("**/api/predict", lambda route: route.continue_(url=f"{route.request.url}?draws=1000000"))
    choose(page, encode())
    row(page, "red").wait_for()
    page.close()
    assert running.client.predict(encode(), query="?draws=1").status == 200


def test_example_by_keyboard(opened):
    """Everything can be reached and used by keyboard: an example, the slider, the buttons."""
    page = opened()
    page.locator("body").press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    reached = []
    for _ in range(8):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.dataset.example"))
        if reached[-1] == "0":
            break
    assert reached == ["radius", "file", "camera-open", "0"]
    page.keyboard.press("Enter")
    finish(page)
    page.focus("#radius")
    before = float(page.locator("#radius-shown").inner_text())
    page.keyboard.press("ArrowRight")
    assert float(page.locator("#radius-shown").inner_text()) == pytest.approx(before + 0.05)
    page.focus("#attack-it")
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-part=smoothed]", timeout=30_000)
    assert page.problems == []


def test_drop(opened):
    """A photo can be dropped anywhere on the page."""
    page = opened()
    page.evaluate(
        """(bytes) => {
            const given = new DataTransfer();
            given.items.add(new File([new Uint8Array(bytes)], "photo.png", { type: "image/png" }));
            const options = { bubbles: true, cancelable: true, dataTransfer: given };
            for (const kind of ["dragover", "drop"]) document.body.dispatchEvent(new DragEvent(kind, options));
        }""",
        list(encode()),
    )
    finish(page)
    assert "stays up to" in row(page, "red").locator(".value").inner_text()
    assert page.problems == []


def test_camera(opened):
    """A photo can be taken with the camera, which is closed afterwards."""
    page = opened()
    page.click("#camera-open")
    page.wait_for_selector("#video", state="visible")
    page.click("#camera-take")
    finish(page)
    assert page.locator("#labels tr").count() >= 2
    assert page.locator("#camera").is_hidden()
    assert page.problems == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_phone(opened, scheme):
    """On a phone everything fits the width, with the answer and the attack."""
    page = opened(width=360, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    choose(page, encode())
    finish(page)
    page.click("#attack-it")
    page.wait_for_selector("[data-part=smoothed]", timeout=30_000)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    beyond = page.evaluate(
        """() => [...document.querySelectorAll('body *:not(.unseen):not(.skip)')]
            .filter((each) => each.getBoundingClientRect().right > innerWidth + 0.5 && each.getClientRects().length)
            .map((each) => each.className || each.tagName)"""
    )
    assert beyond == []
    assert page.problems == []


def test_calibrated(browser, calibrated, tmp_path):
    """A calibrated answer has its promise; the attack looks for the first radius; the page is saved as one file."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(calibrated.address)
    assert "at least 80 % of the true labels" in page.locator(".lede").inner_text()
    choose(page, encode())
    page.wait_for_selector("#attack-it:not([disabled])")
    assert page.locator("#more").is_disabled()
    assert "Returned: red" in page.locator("#statement").inner_text()
    page.click("#attack-it")
    page.wait_for_selector("[data-part=smoothed]", timeout=30_000)
    page.wait_for_selector("#save:not([disabled])")
    radius = page.locator("#radius-shown").inner_text()
    assert f"R = {radius}" in page.locator("#attack-heading").inner_text()
    with page.expect_download() as download:
        page.click("#save")
    saved = tmp_path / "result.html"
    download.value.save_as(saved)
    text = saved.read_text()
    assert "<script" not in text
    requests = []
    other = context.new_page()
    other.on("request", lambda request: requests.append(request.url))
    other.goto(saved.as_uri())
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    for words in ("Returned: red", "at least 80 % of the true labels", "The calibrated classifier", "sha256"):
        assert words in other.locator("body").inner_text()
    context.close()
