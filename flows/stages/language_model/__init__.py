"""Stages that ask a language model."""
