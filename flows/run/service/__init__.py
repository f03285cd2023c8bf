"""The machine looked after: what it lacks, what may be removed, what starts runs."""
