"""What can be known of a run before its work is done, without the libraries that do the work."""
