"""What is read: shards, their order, batches."""
