"""The papers of a corpus and of the model that was trained on it: `gristmill export provenance`.

figures.py      the numbers: each is the result of a query over the run
papers.py       data-card.md; training-summary.md: the European Commission's template, and California's list
lineage.py      croissant.json: the data set with the stages that it was derived from
annotations.py  annotations/: a row for each record, by the key of web indexes
folder.py       writes them
"""
