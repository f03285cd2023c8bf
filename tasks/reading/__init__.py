"""From what a source names to records: archives, tables and texts, local or remote, damaged or not."""
