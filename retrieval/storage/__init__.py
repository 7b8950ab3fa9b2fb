"""Files, caches and arrays on disk: written whole or not at all, checked when read, locked while written."""
