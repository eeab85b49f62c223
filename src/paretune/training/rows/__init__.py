"""Rows of a data set: found, read, split, tokenised, dealt to devices.

sources.read_rows             texts and class ids per split, from a hub id, a file or a folder
data.prepare                  tokenises them once into Arrow files
data.TokenRows                one prepared split as a PyTorch data set
batches.GlobalBatchSampler    which rows make which optimiser step
bundled                       model and data that are installed as Python packages
hub                           the Hugging Face hub: whether it answers, and what its errors mean
"""
