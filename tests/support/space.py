"""Rankings and files for the tests of the web page."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from docparade.hub_cards.space.ranking import Ranking
from docparade.hub_cards.space.sources import SourceDocument
from docparade.modeling.engine_results import RankedDocument, RankedPassage

# Chromium as root has no sandbox; the rest keeps it from calling home.
BROWSER_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def find_browser() -> str | None:
    """A Chromium of this machine."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((found for name in names if (found := shutil.which(name))), None)


def make_ranking(
    text: str,
    spans: Sequence[tuple[int, int]],
    scores: Sequence[float],
    weights: Sequence[float] | None = None,
    name: str = "A document",
    unread: int = 0,
    **fields: str,
) -> Ranking:
    """A ranking of one document with these passages; by default, the one with the best score counted."""
    weights = weights or [float(score == max(scores)) for score in scores]
    passages = [
        RankedPassage(text[start:end], start, end, score, weight)
        for (start, end), score, weight in zip(spans, scores, weights, strict=True)
    ]
    document = RankedDocument(0, None, max(scores), passages, unread, text)
    source = SourceDocument(name, text, origin=fields.get("origin", ""))
    means = fields.get("weight_means", "1 for the best passage")
    return Ranking(fields.get("label", "MaxP"), [document], [source], means, tokens=12, seconds=0.5)


def write_pdf(path: Path, text: str, password: str | None = None, pages: int = 1) -> Path:
    """Write a PDF file with an ASCII text or none on its last page."""
    writer = PdfWriter()
    for _ in range(pages):
        page = writer.add_blank_page(300, 300)
    names = {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica"}
    font = DictionaryObject({NameObject(key): NameObject(value) for key, value in names.items()})
    fonts = DictionaryObject({NameObject("/F1"): font})
    page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
    stream = DecodedStreamObject()
    stream.set_data(f"BT /F1 12 Tf 20 200 Td ({text}) Tj ET".encode("ascii") if text else b"")
    page[NameObject("/Contents")] = writer._add_object(stream.flate_encode())
    if password is not None:
        writer.encrypt(password, algorithm="RC4-128")
    with path.open("wb") as file:
        writer.write(file)
    return path
