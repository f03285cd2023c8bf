"""Compiled code of KenLM and fastText: two programs and two modules, which `native/build_hook.py` puts here.

Separate because it holds no Python of ours. The modules are imported from here and under no other name, so that a
user's own `kenlm` and `fasttext` can be installed and imported in the same process.
"""
