"""The measures as a metric of Hugging Face `evaluate`: `evaluate.load(RANKING_METRIC)`."""

from pathlib import Path

RANKING_METRIC = str(Path(__file__).parent / "ranking_metric")
"""the folder that `evaluate.load` takes"""
