"""Phrases in token shards: suffix arrays, and what is looked up in them."""
