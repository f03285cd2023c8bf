"""The text of what is kept of a page, plain or as Markdown: rendered from its source, which a scan has divided."""
