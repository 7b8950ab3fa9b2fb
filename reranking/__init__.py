"""A trained ranker over a first-stage run: documents by id, kept tokens, resumable parts, several processes.

The public names are listed in `__init__.pyi`, and imported when they are first used:

    from docparade.reranking import CollectionDocuments, load_ranker, rerank
    run = rerank(load_ranker("my-ranker"), first_stage_run, collection.queries(), CollectionDocuments(collection))
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
