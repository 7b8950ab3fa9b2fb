"""Recipes that come with docparade, in `recipes/`, and the models and data that they name, in `models/` and `data/`."""
