"""What differs between two finished corpora: documents, texts, columns, shares of sources and hosts.

matching     the two sides; which documents only one of them has, why, and which have different text
columns      distributions of columns on both sides; tokens, or characters, by source and by host
difference   all of these, the changes in texts, and the page
targets      comparison of two recipes or stages by name
"""
