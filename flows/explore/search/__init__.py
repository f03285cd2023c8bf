"""Look texts up: phrases in a corpus, spans of a text in it, and what a step of a training read."""
