"""From what a source names to records: archives, tables and texts, local or remote, whatever state they are in."""
