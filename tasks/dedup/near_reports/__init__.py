"""What near-duplicate removal did: clusters, measured recall, look-up of one text."""
