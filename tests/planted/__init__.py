"""A planted web: archives of a crawl that never was, and the truth about every record in them.

    from tests.planted import Plan, plant

    truth = plant(tmp_path / "web", Plan(pages=2000, seed=7, near=0.2))
    truth.archives                                  # what a source of a recipe names
    truth.rows(kind="near")                         # what must come out
    truth.pairs()                                   # [(page, page, Jaccard), ...]

`Plan.clean(pages=500, personal=70)` plants what a test is about among ordinary pages and nothing else. `texts(plan)`
gives main texts alone, for tests of what comes after extraction.
"""

from tests.planted.pages import texts
from tests.planted.plan import KINDS, VARIANTS, Plan
from tests.planted.writing import Truth, plant

__all__ = ["KINDS", "VARIANTS", "Plan", "Truth", "plant", "texts"]
