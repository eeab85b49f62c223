"""Rows of a data set: read, split, tokenised, and distributed to devices.

sources.read_rows             texts and labels per split, from a hub id, a file or a folder
tokenised.prepare             tokenises them once into Arrow files
tokenised.TokenRows           one prepared split as a PyTorch data set
batches.GlobalBatchSampler    the rows of each optimiser step
bundled                       the model and the data that are installed as Python packages
hub                           the Hugging Face hub: whether it answers, and explanations of its errors
"""
