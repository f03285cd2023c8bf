"""What the address of a page gives: its canonical form, its site, and the lists and words that it hits."""
