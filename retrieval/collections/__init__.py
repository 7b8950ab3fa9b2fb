"""Test collections: documents, queries and judgments, whatever they are stored as."""
