"""Rows of a data set: found, read, split, tokenised."""
