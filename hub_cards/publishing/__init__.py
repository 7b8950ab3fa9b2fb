"""Pushing a model's folder to the Hub, with the checks before, and the list of docparade's own models."""
