"""The decoder, its loss, and how it is spread over processes."""
