"""What is computed of documents once and kept on disk: tokens and vectors, found by fingerprints."""
