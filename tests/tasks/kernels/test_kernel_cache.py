"""A kernel that was compiled before a change of what it calls is not used after it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CALL = """
import numpy as np
from gristmill.tasks.kernels.shingles import word_shingle_sets
text = "één twee drie vier".encode()
print(word_shingle_sets(np.frombuffer(text, np.uint8), np.array([0, len(text)]), 2)[0].tolist())
"""


@pytest.mark.slow
def test_a_change_in_another_file_reaches_a_kept_kernel(tmp_path):
    left = shutil.ignore_patterns("__pycache__", "compiled")
    shutil.copytree(ROOT / "gristmill", tmp_path / "gristmill", ignore=left)
    environment = os.environ | {"HOME": str(tmp_path / "home"), "PYTHONPATH": str(tmp_path)}

    def shingles() -> str:
        command = [sys.executable, "-c", CALL]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    before = shingles()
    assert shingles() == before
    changed = tmp_path / "gristmill" / "tasks" / "kernels" / "characters.py"
    planted = changed.read_text().replace("(b & 0x1F) << 6 | c, i + 2", "((b & 0x1F) << 6 | c) + 1, i + 2")
    assert planted != changed.read_text()
    changed.write_text(planted)
    assert shingles() != before
