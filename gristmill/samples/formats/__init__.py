"""Tokens as folders of other trainers' own formats, for `gristmill export tokens`.

A trainer is a module with `files_of(export)`, the files in their order, and `start(export)`, the lines of the card
that say how to begin; `gristmill.samples.formats.folder` has the table and writes the folder. A trainer that follows
shares and repetition by itself gets shards and the mixture in its own words; where there are phases or packed rows,
which no other trainer follows, and for one that mixes nothing, it gets the samples in the order in which they are
read.
"""
