"""Source code: languages, licenses, headers, rules on files, and notebooks."""
