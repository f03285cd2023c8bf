"""Deduplication: what each step means and does, as functions from columns and files to files.

exact          equal contents, equal URLs
passages       lines, paragraphs, spans of sentences
substrings     spans of any length; substring_cuts: what becomes of their documents
cutting        documents written again; shared by passages and substring_cuts
minhash        near-duplicates: the settings, and what is promised; `tasks.dedup.near.phases` has the phases
signatures, nodes, components, stars, takedowns       parts of that
order          which of several duplicates survives; shared by exact and minhash
lookup         one text against all signatures
evidence       what was found; recall: what must have been missed
"""
