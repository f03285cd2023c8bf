"""Searches in a finished run, which make nothing: phrases, spans of a text, and documents ranked by words."""
