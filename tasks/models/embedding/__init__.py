"""Sentence embeddings, and heads that score them."""
