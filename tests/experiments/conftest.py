"""A small collection, for this room's tests."""

from support.training import small

__all__ = ["small"]
