"""Rows of a data set: read, split, tokenised, and distributed to devices.

sources.read_rows             texts and labels per split, from a hub id, a file or a folder
tokenised.prepare             tokenises them once into Arrow files
tokenised.TokenRows           one prepared split as a PyTorch data set
batches.GlobalBatchSampler    the rows of each optimiser step
hub                           models and data of the Hugging Face hub, and those that are installed as Python packages
"""
