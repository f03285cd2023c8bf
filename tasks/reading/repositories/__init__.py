"""Folders and archives of source code, read file by file or as whole repositories."""
