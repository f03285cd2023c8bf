"""Source code: languages, licences, headers, rules on files, and notebooks."""
