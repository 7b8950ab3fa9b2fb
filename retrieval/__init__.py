"""The IR side: collections, first stage, runs, measures; needs neither torch nor transformers.

The public names are listed in `__init__.pyi`, and imported when they are first used:

    from docparade.retrieval import evaluate, read_qrels, read_run
    print(evaluate(read_qrels("qrels.txt"), read_run("bm25.txt"), "nDCG@20 AP@100").means)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
