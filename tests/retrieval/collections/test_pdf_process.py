"""What a PDF file does to the process that reads it, it does to no other."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pypdf", reason="pypdf is not installed: pip install '.[space]'")

from support.space import write_pdf

from docparade.retrieval.collections import pdf_process
from docparade.retrieval.collections.pdf_process import PdfLimits, read_pdf_in_process
from docparade.retrieval.errors import InputError

# A busy machine takes its time to start a process.
PATIENT = PdfLimits(seconds=300)


def test_a_file_is_read_as_without_a_process(tmp_path: Path) -> None:
    assert read_pdf_in_process(write_pdf(tmp_path / "-a b.pdf", "It rains."), PATIENT) == ("", "It rains.")


def test_what_is_wrong_with_a_file_is_said(tmp_path: Path) -> None:
    bad = tmp_path / "bad.pdf"
    bad.write_text("no PDF")
    with pytest.raises(InputError, match=r"bad\.pdf cannot be read as PDF"):
        read_pdf_in_process(bad, PATIENT)
    long = write_pdf(tmp_path / "long.pdf", "It rains.", pages=2)
    with pytest.raises(InputError, match=r"long\.pdf has 2 pages; 1"):
        read_pdf_in_process(long, PdfLimits(PATIENT.seconds, pages=1))


@pytest.mark.slow
def test_a_file_that_takes_too_long(tmp_path: Path) -> None:
    endless = write_pdf(tmp_path / "endless.pdf", "a) Tj ET BT /F1 12 Tf 20 200 Td (" * 90_000)
    assert endless.stat().st_size < 20_000
    with pytest.raises(InputError, match=r"endless\.pdf takes too long"):
        read_pdf_in_process(endless, PdfLimits(seconds=2))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits a process's memory")
def test_a_file_that_takes_too_much_memory(tmp_path: Path) -> None:
    wide = write_pdf(tmp_path / "wide.pdf", "a" * 70_000_000)
    assert wide.stat().st_size < 100_000
    with pytest.raises(InputError, match=r"wide\.pdf takes too much memory"):
        read_pdf_in_process(wide, PdfLimits(PATIENT.seconds, memory=250 * 2**20))


@pytest.mark.parametrize("what", ["os._exit(3)", "os.kill(os.getpid(), 9)"])
def test_a_file_that_ends_its_reader(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = subprocess.run

    def run_reader(command: list[str], **options: Any) -> Any:
        script = f"import os, sys\nprint('the end', file=sys.stderr, flush=True)\n{what}"
        return run([command[0], "-c", script], **options)

    monkeypatch.setattr(pdf_process.subprocess, "run", run_reader)
    with (
        caplog.at_level(logging.ERROR),
        pytest.raises(InputError, match=r"a\.pdf cannot be read as PDF"),
    ):
        read_pdf_in_process(write_pdf(tmp_path / "a.pdf", "It rains."), PATIENT)
    assert "the end" in caplog.text
