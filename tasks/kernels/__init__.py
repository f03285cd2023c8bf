"""Kernels over Arrow buffers, compiled by numba. A module is imported, and numba with it, when it is first used."""

from typing import TYPE_CHECKING

from wrapt import lazy_import

if TYPE_CHECKING:
    from gristmill.tasks.kernels import (
        automaton as automaton,
    )
    from gristmill.tasks.kernels import (
        buffers as buffers,
    )
    from gristmill.tasks.kernels import (
        characters as characters,
    )
    from gristmill.tasks.kernels import (
        folding as folding,
    )
    from gristmill.tasks.kernels import folding as words
    from gristmill.tasks.kernels import (
        minhash as minhash,
    )
    from gristmill.tasks.kernels import (
        minimizers as minimizers,
    )
    from gristmill.tasks.kernels import (
        ngrams as ngrams,
    )
    from gristmill.tasks.kernels import (
        phrases as phrases,
    )
    from gristmill.tasks.kernels import (
        pieces as pieces,
    )
    from gristmill.tasks.kernels import pieces as rescan
    from gristmill.tasks.kernels import (
        repetition as repetition,
    )
    from gristmill.tasks.kernels import (
        scan as scan,
    )
    from gristmill.tasks.kernels import (
        segmentation as segmentation,
    )
    from gristmill.tasks.kernels import (
        separated as separated,
    )
    from gristmill.tasks.kernels import (
        shingles as shingles,
    )
    from gristmill.tasks.kernels import (
        suffixes as suffixes,
    )
    from gristmill.tasks.kernels import (
        tokens as tokens,
    )
else:
    automaton = lazy_import("gristmill.tasks.kernels.automaton")
    buffers = lazy_import("gristmill.tasks.kernels.buffers")
    characters = lazy_import("gristmill.tasks.kernels.characters")
    folding = lazy_import("gristmill.tasks.kernels.folding")
    minhash = lazy_import("gristmill.tasks.kernels.minhash")
    minimizers = lazy_import("gristmill.tasks.kernels.minimizers")
    ngrams = lazy_import("gristmill.tasks.kernels.ngrams")
    phrases = lazy_import("gristmill.tasks.kernels.phrases")
    pieces = lazy_import("gristmill.tasks.kernels.pieces")
    repetition = lazy_import("gristmill.tasks.kernels.repetition")
    rescan = lazy_import("gristmill.tasks.kernels.pieces")
    scan = lazy_import("gristmill.tasks.kernels.scan")
    segmentation = lazy_import("gristmill.tasks.kernels.segmentation")
    separated = lazy_import("gristmill.tasks.kernels.separated")
    shingles = lazy_import("gristmill.tasks.kernels.shingles")
    suffixes = lazy_import("gristmill.tasks.kernels.suffixes")
    tokens = lazy_import("gristmill.tasks.kernels.tokens")
    words = lazy_import("gristmill.tasks.kernels.folding")
