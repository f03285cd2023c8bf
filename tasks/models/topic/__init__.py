"""What a document is about, and which format it has."""
