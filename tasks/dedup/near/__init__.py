"""Near-duplicates by MinHash-LSH."""
