"""Steps that ask a language model, and the answers that a home keeps."""
