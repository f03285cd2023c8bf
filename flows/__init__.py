"""What runs, in which order, with what settings. For Python users the module `gristmill` has the flows."""

import os

# or the import of prefect in a terminal reports its first use to its makers; MLflow reads it, too
os.environ.setdefault("DO_NOT_TRACK", "1")
