"""Deduplication: what each step means and does, as functions from columns and files to files.

exact          equal contents, equal URLs
passages       lines, paragraphs, spans of sentences
host_lines     lines of many pages of one host
substrings     spans of any length; substring_cuts: cut them out, or drop their documents
exchange       sorted files between shards and partitions; shared by all of the above
near           near-duplicates: settings, phases and reports
order          which of several duplicates is kept; shared by exact and near
takedowns      lists of documents that may not be kept
"""
