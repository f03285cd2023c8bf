"""From documents to token shards: tokenizer, encoding, mixture."""
