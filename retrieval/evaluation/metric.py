"""The measures as a metric for Hugging Face `evaluate`: `evaluate.load(RANKING_METRIC)`."""

from pathlib import Path

RANKING_METRIC = str(Path(__file__).parent / "ranking_metric")
"""the folder to give to `evaluate.load`"""
