"""Rows of a data set: read (sources, hub), split, tokenised, and distributed to devices (tokenised)."""
