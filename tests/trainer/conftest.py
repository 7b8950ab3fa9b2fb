"""The tiny models, for this room's tests."""

from tiny_models import encoder_folder, random_text, tiny_ranker, tokenizers

__all__ = ["encoder_folder", "random_text", "tiny_ranker", "tokenizers"]
