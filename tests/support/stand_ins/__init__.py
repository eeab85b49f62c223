"""Services that replace the real ones in tests. Their error messages are the texts of the real service.

aws            AWS in this process, for unit tests; its training jobs (from `sagemaker`) do what a test decides
sagemaker      AWS over HTTP, with training jobs that really run; its docstring lists what it covers
hub            a Hugging Face hub, as huggingface_hub 2.4 and datasets 5.2 read it
mlflow_store   an MLflow store that denies writing
postgresql     a real PostgreSQL server that only the tests use
"""
