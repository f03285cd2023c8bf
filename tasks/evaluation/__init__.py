"""Documents that recipes are compared on: their sample, their removal from what is trained on, their tokens."""
