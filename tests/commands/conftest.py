"""The small collection, for the command line's tests."""

from support.collections import small

__all__ = ["small"]
