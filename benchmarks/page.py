"""The size of a report of 500 images and the time to open it: `python -m benchmarks.page [REPORT]`.

Without a path it writes a report of simulated votes and random pixels, which compress worse than photographs. The
time to open is from the start of navigation to the first frame after the page's own scripts, in a fresh browser window
each time.
"""

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from playwright.sync_api import Browser, sync_playwright
from tests.report.browsing import BROWSER
from tests.report.studies import NoiseImages, make_run

from multiguard.report import Study, write_page


def simulated_report(folder: Path, images: int = 500) -> Path:
    """Write a report of this many images, and time it."""
    study = Study(make_run(folder, images=images, methods=("joint", "paper", "jia", "independent"), swept=True))
    start = time.perf_counter()
    write_page(study, folder / "report.html", images=NoiseImages(study.main.certificates.ids, side=224))
    print(f"page: {images} images written in {time.perf_counter() - start:.1f} s")
    return folder / "report.html"


def open_seconds(browser: Browser, path: Path, width: int) -> tuple[float, float]:
    """Seconds from navigation to the first frame after all scripts, and the processor seconds of the page in them."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    metrics = page.context.new_cdp_session(page)
    metrics.send("Performance.enable", {"timeDomain": "threadTicks"})
    start = time.perf_counter()
    page.goto(path.as_uri(), wait_until="load")
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    seconds = time.perf_counter() - start
    values = {each["name"]: each["value"] for each in metrics.send("Performance.getMetrics")["metrics"]}
    page.close()
    return seconds, values["TaskDuration"]


def slide_milliseconds(browser: Browser, path: Path, *, all_cards: bool) -> float:
    """The median of thirty steps of the slider, from the event to the next frame."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(path.as_uri())
    if all_cards and page.locator("#show-all").is_visible():
        page.locator("#show-all").click()
    steps = page.evaluate(
        """async () => {
            const slider = document.getElementById("radius"), taken = [];
            for (let step = 0; step < 30; step += 1) {
                const start = performance.now();
                slider.value = step;
                slider.dispatchEvent(new Event("input"));
                await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
                taken.push(performance.now() - start);
            }
            return taken;
        }"""
    )
    page.close()
    return float(median(steps))


def main() -> None:
    """Print the measurements."""
    if BROWSER is None:
        sys.exit("page: no chromium, chromium-browser or google-chrome is installed")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else simulated_report(Path(folder))
        print(f"  size: {path.stat().st_size / 1e6:.1f} MB")
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        for width in (1440, 390):
            taken, busy = zip(*(open_seconds(browser, path, width) for _ in range(5)), strict=True)
            print(f"  opens in {median(taken):.2f} s at {width} pixels (from {min(taken):.2f} to {max(taken):.2f}),")
            print(f"    of which the page itself takes {median(busy):.2f} s of one processor")
        for cards, words in ((False, "24 cards shown"), (True, "all cards shown")):
            print(f"  a step of the slider, {words}: {slide_milliseconds(browser, path, all_cards=cards):.0f} ms")
        browser.close()


if __name__ == "__main__":
    main()
