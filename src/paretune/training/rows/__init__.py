"""Rows of a data set: read, split, tokenised, and distributed to devices."""
