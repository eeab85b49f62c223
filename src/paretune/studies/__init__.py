"""Studies: the file, the search, the books, and the answer."""
