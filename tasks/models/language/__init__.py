"""In which language, or languages, a document is."""
