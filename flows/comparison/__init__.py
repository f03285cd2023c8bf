"""The statistics of a decision between recipes: pure functions over numpy and scipy, with known error rates."""
