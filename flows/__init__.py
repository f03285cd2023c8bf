"""What runs, in which order, with what settings. For Python users the module `gristmill` has the flows."""
