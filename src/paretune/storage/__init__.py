"""Files and databases, read and written safely."""
