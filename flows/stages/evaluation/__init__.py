"""Which documents models are evaluated on, and what training sees without them."""
