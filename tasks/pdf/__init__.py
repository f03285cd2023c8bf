"""PDF documents that have their text in them, as text or Markdown.

    bytes ─document─▶ pages ─objects─▶ ruling lines, texts of drawn glyphs ─characters, glyphs─▶ segments
          ─grids─▶ with ruled tables ─running─▶ without running heads ─columns─▶ lines in reading order
          ─paragraphs, tables, headings─▶ blocks ─document─▶ one text, its metadata and signals

pypdfium2 reads the file and returns the position of each character; everything after that is our code. A document is
read in a guarded process (`gristmill.tasks.guard`), which bounds its time and memory. Lengths are points (1/72 inch) of
the page's own axes, y upwards.
"""
