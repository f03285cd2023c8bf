"""The main text of a page: engines behind one small interface, and the default that is our own."""
