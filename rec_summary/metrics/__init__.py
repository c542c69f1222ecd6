"""Streaming recommender metrics, pure numpy: small mergeable states and what is read from them."""
