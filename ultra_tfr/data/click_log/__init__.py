"""Click logs: from files of rows to requests."""
