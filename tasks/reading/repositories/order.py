"""The order of a repository's files in a document: what is imported comes before what imports it.

So a model has read a module when it comes to its use, as in DeepSeek-Coder's repositories (Guo et al. 2024, arXiv
2401.14196, section 2.2), whose algorithm this is: of the files that are left, the one with the fewest imports that are
not placed yet is next. Files of languages whose imports are not known stand by their paths behind those.
"""

import heapq
from collections.abc import Sequence

from gristmill.tasks.reading.repositories.imports import Imports


def in_order(files: Sequence[tuple[str, str]]) -> list[int]:
    """The places of files, given as (path, text), in the order in which they are read: those first that import none of
    the others, in a circle the one with the fewest such imports; ties go by the path. Files of which no imports are
    known follow by their paths."""
    imports = Imports([path for path, _ in files])
    needs = {
        at: others - {at} for at, (path, text) in enumerate(files) if (others := imports.of(path, text)) is not None
    }
    users: dict[int, list[int]] = {}
    for at, others in needs.items():
        for other in others & needs.keys():
            users.setdefault(other, []).append(at)
    left = {at: len(others & needs.keys()) for at, others in needs.items()}
    heap = [(count, files[at][0], at) for at, count in left.items()]
    heapq.heapify(heap)
    found: list[int] = []
    while heap:
        count, _, at = heapq.heappop(heap)
        if left.get(at) != count:
            continue  # placed, or with fewer left by now
        del left[at]
        found.append(at)
        for user in users.get(at, ()):
            if user in left:
                left[user] -= 1
                heapq.heappush(heap, (left[user], files[user][0], user))
    rest = sorted((at for at in range(len(files)) if at not in needs), key=lambda at: files[at][0])
    return found + rest
