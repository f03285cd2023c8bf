"""A small home of each release that users may have, packed with its recipe and its sources: what the present version
makes of it.

`<release>-<commit>.tar.xz` has `recipe.yaml`, `sources/` and `home/`, made by that release with
`gristmill run recipe.yaml`, without databases, logs and checkpoints. Add one with each release.
"""
