"""Documents that say the same in other words: pairs of near vectors within clusters (SemDeDup, arXiv 2303.09540)."""
