"""First-stage retrieval: text analysis, inverted index, BM25, query likelihood, RM3; or Lucene as the engine."""
