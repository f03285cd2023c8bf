"""Writes a synthetic crawl of any size, to try a pipeline on: python -m tools.harvest --help.

Its statistics are about those of a crawl of the web: lengths, languages, hosts and clusters of copies by power laws,
templates, media types, failures. Every document is a function of the seed, the number of documents and its own number,
so a file is written without the others, and copies of one page are found in files far apart.
"""
