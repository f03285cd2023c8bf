"""Removal of near-duplicates over the whole corpus, as functions from files to files.

How a flow runs MinHash-LSH; `for all` is a map over an executor, each line a barrier. All arguments are
paths, numbers and settings, and a call that is made again writes the same bytes:

    from tasks.dedup import clusters, links, minhash, signatures

    settings = minhash.MinHash()
    for all shards s:      signatures.sign(documents_s, signed, s, settings)  # a table with id, text
    for all shards s:      signatures.band(folder, signed, s, settings)
    for all partitions p:  links.link(folder, signed, p, n_shards, settings)
    once:                  clusters.cluster(folder, signed, n_shards, settings)
    for all shards s:      kept, dropped = clusters.split(folder, signed, s)

    signed/signatures/part-00000.parquet               id, length, size, content, signature, shingles
    folder/bands/partition-00/part-00000.parquet       band, hash, shard, row
    folder/links/partition-00.parquet                  pairs of (shard, row) with their Jaccard similarity
    folder/clusters/part-00000.parquet                 row, id, representative, jaccard, cluster_size

`sign` uses only `settings.signature_settings()`, so signatures outlive another threshold; `folder` and `signed`
may be the same. A row is a row of a signature file; outside, ids are the
keys.
"""
