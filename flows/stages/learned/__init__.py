"""Learned filters whose models are trained otherwise than on reference sources."""
