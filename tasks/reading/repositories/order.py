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
        place: others - {place}
        for place, (path, text) in enumerate(files)
        if (others := imports.of(path, text)) is not None
    }
    users: dict[int, list[int]] = {}
    for place, others in needs.items():
        for other in others & needs.keys():
            users.setdefault(other, []).append(place)
    open_needs = {place: len(others & needs.keys()) for place, others in needs.items()}
    heap = [(count, files[place][0], place) for place, count in open_needs.items()]
    heapq.heapify(heap)
    places: list[int] = []
    while heap:
        count, _, place = heapq.heappop(heap)
        if open_needs.get(place) != count:
            continue  # placed, or with fewer left by now
        del open_needs[place]
        places.append(place)
        for user in users.get(place, ()):
            if user in open_needs:
                open_needs[user] -= 1
                heapq.heappush(heap, (open_needs[user], files[user][0], user))
    rest = sorted((place for place in range(len(files)) if place not in needs), key=lambda place: files[place][0])
    return places + rest
