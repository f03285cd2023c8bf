"""Documents that hold items of benchmarks: which, how much of each, and what becomes of them."""
