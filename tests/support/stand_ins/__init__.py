"""Services that tests talk to in place of the real ones; the words of each error are AWS's own.

aws          AWS in this process, for unit tests, with the training jobs of `sagemaker`, which do what a test says
sagemaker    AWS over HTTP, with training jobs that really run: see its own list
hub          a Hugging Face hub, as huggingface_hub 2.4 and datasets 5.2 read it
postgresql   a real PostgreSQL server of one's own
"""
