"""A finished corpus to look around in: a local web page, or one static page.

opened       the corpus, and what is known of it without reading documents
draws        documents drawn by a seed: dropped by a rule, or kept
search       kept documents for which an expression is true
replay       another threshold: what it would drop, which documents enter and leave
votes        readers' votes on documents, and the precision of drops by them
topics       a map of documents by their vectors
document     one document: text, page, scores, decisions
shown        documents as pages show them, and the static page
pages        the pages by their addresses
server       the pages on the loopback interface, for who has the token
"""
