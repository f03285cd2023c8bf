"""Stages of what models are evaluated on: documents, and tasks."""
