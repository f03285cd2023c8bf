"""Large files are read in ranges by several jobs: which there are, where each begins, and whether all of them fit."""
