"""Services that replace the real ones in tests; the text of each error is AWS's own.

aws          AWS in this process, for unit tests; its training jobs, from `sagemaker`, do what a test says
sagemaker    AWS over HTTP, with training jobs that really run; its docstring lists what it covers
hub          a Hugging Face hub, as huggingface_hub 2.4 and datasets 5.2 read it
postgresql   a real PostgreSQL server for the tests alone
"""
