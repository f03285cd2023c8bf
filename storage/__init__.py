"""What is kept and how: files, schemas, shards, stages, the ledger of drops, token shards."""
