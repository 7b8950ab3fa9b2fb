"""The card of a model: its text and metadata, from the files of the model's folder and what only a person knows."""
