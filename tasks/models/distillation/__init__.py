"""The step `distill`: settings, learning from annotations, scores, and what held-out annotations say of them."""
