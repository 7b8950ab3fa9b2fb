"""The small collection, for this room's tests."""

from support.collections import small

__all__ = ["small"]
