"""The IR side: collections, first stage, runs, measures; needs neither torch nor transformers."""
