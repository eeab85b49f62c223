"""Rows of a data set: read and split (sources), checked (findings), tokenized and distributed (tokenized)."""
