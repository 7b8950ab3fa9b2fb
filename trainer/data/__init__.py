"""What a model is trained on: pairs, triples and labeled documents, and the batches that are made of them."""
