"""Tokens at rest: shards, tokenizers and what training reads of both."""
