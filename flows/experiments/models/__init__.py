"""Models that commands train or evaluate."""
