"""Statistics of a decision: what one recipe is worth beside another, and how sure that is."""
