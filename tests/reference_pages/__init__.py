"""The pages that the code knows, written from it: docs/reference/ and the man page.

python -m tests.reference_pages    # writes all of them
"""

from collections.abc import Callable
from pathlib import Path

from tests.reference_pages.columns import columns_page
from tests.reference_pages.commands import commands_page
from tests.reference_pages.man_page import man_page
from tests.reference_pages.recipe_keys import recipe_page
from tests.reference_pages.rules import rules_page
from tests.reference_pages.settings import settings_page

ROOT = Path(__file__).parents[2]
# What writes the text of each page, by its path in the checkout.
PAGES: dict[str, Callable[[], str]] = {
    "docs/gristmill.1": man_page,
    "docs/reference/columns.md": columns_page,
    "docs/reference/commands.md": commands_page,
    "docs/reference/recipe.md": recipe_page,
    "docs/reference/rules.md": rules_page,
    "docs/reference/settings.md": settings_page,
}
