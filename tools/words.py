"""Count how plainly the documentation is written: words per sentence, and words of a private dialect.

    python tools/words.py docs README.md

Prints a row for each file or folder, then the dialect words per 1,000 words beside the highest figure of five peers'
documentation. Only prose counts: code, tables, headings, links' addresses and generated pages do not.
"""

import re
import sys
from collections import Counter
from pathlib import Path

# Word, and the highest rate per 1,000 words in the documentation of Polars, DuckDB, PyTorch (torchtitan), uv and Ruff.
DIALECT: dict[str, tuple[str, float]] = {}
