"""How well a language model of edited prose predicts a document."""
