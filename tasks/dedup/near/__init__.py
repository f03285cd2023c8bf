"""Near-duplicates by MinHash-LSH over the whole corpus, exact in what is dropped. Its phases:

    sign     every shard          part-00000, bands/    signatures, sorted band hashes
    match    every partition      index/, edges/        documents that share a band (module `sign`)
    label    once                 labels/               connected components of the edges
    gather   every shard          gathered/             candidates with their sets, by label
    verify   every partition      decided/              who is dropped, for whom
    (exchange.collect_shards, every range of shards, puts together by shards who is dropped)
    split    every shard          part-00000, ledger/, kept/ (module `label`)

`recall` and `lookup` report: clusters and what must have been missed, and one text against all signatures.

Files go from shards to partitions and back as `gristmill.tasks.dedup.exchange` has it. What is held in memory is in the
docstring of each module; nothing grows with the corpus but the labels: two bits for each document, and four bytes for
each that shares a band with another.
"""
