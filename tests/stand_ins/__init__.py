"""Services that tests talk to in place of the real ones; the words of each error are AWS's own.

aws          AWS in memory, for unit tests: S3, CloudWatch, STS, IAM and prices answer as the API
             references say (read 2026-11-20), requests are checked against the model that botocore ships, training jobs
             do what a test says, and calls fail on request
sagemaker    the same services over HTTP, with training jobs that really run: see its own list
hub          a Hugging Face hub, as huggingface_hub 2.4 and datasets 5.2 read it
postgresql   a real PostgreSQL server of one's own
"""
