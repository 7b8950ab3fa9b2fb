from .approximate_search import ApproximateIndex as ApproximateIndex
from .documents import CollectionDocuments as CollectionDocuments
from .full_ranking import rank_all_documents as rank_all_documents
from .loading import load_ranker as load_ranker
from .query_set import QuerySet as QuerySet
from .rerank_run import rerank as rerank, rerank_to_file as rerank_to_file
from .token_cache import TokenCache as TokenCache
from .vector_cache import VectorCache as VectorCache
from .vector_types import VectorType as VectorType
