"""Rows of a data set: read (sources, hub), split and tokenised (tokenised), and distributed to devices (batches)."""
