"""The tiny models, for this folder's tests."""

from tiny_models import encoder_folder, tiny_ranker, tokenizers

__all__ = ["encoder_folder", "tiny_ranker", "tokenizers"]
