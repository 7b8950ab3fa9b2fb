from .caches.approximate_search import ApproximateIndex as ApproximateIndex
from .caches.document_lookup import CollectionDocuments as CollectionDocuments
from .caches.token_cache import TokenCache as TokenCache
from .caches.vector_cache import VectorCache as VectorCache
from .caches.vector_types import VectorType as VectorType
from .full_ranking import rank_all_documents as rank_all_documents
from .loading import load_ranker as load_ranker
from .query_set import QuerySet as QuerySet
from .rerank_run import rerank as rerank, rerank_to_file as rerank_to_file
