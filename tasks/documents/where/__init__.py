"""Expressions over the columns of documents: `topic == 'science' and characters < 100000`.

syntax     what an expression may be, which columns it reads, its clauses; the standard library alone
evaluate   an expression over a table, by Arrow's functions
where      the step of that name
"""
