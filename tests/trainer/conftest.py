"""The tiny models and a small collection, for this room's tests."""

import pytest
from tiny_models import encoder_folder, random_text, tiny_ranker, tokenizers
from training_support import World, world

__all__ = ["encoder_folder", "random_text", "tiny_ranker", "tokenizers"]


@pytest.fixture(scope="session")
def small() -> World:
    """A collection of four queries."""
    return world(4)
