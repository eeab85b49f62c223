"""Rows of a data set: read (sources, hub), split, tokenized, and distributed to devices (tokenized)."""
