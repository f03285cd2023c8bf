"""Write all reference pages into the checkout."""

from tests.reference_pages import PAGES, ROOT

for path, page in PAGES.items():
    (ROOT / path).write_text(page(), encoding="utf-8")
    print(f"wrote {path}")
