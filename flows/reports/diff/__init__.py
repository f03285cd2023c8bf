"""What differs between two finished corpora: documents, texts, columns, shares of sources and hosts.

sides        the stages of a recipe or of a stage, whose documents are compared
matching     which documents are on one side alone, why, and which have another text
columns      distributions of what was measured, on both sides
shares       tokens, or characters, by source and by host
difference   all of these together, what was changed in texts, and the page
"""
