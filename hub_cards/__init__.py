"""How a model is published."""
