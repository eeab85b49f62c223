"""Rows of a data set: read and split (sources, hub), checked (findings), tokenized and distributed (tokenized)."""
