"""Reports on finished homes. They return data; the command line renders it."""
