"""Questions about training that are answered by runs of small models."""
