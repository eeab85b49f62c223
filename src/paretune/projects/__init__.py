"""Any MLflow project on SageMaker: `mlflow run URI --backend sagemaker --backend-config '{"instance_type": "ml..."}'`.

backend        the plugin that MLflow calls
launching      from a project to a running job
configuration  what --backend-config may say
environment    what a project's environment file means to pip and to an image
command        the entry point's command, with local files as they are called in the job
reach          whether a job may write to the tracking server itself
orders         one training job made of all that
inside         what runs in the job: it installs, opens a store, and is the parent of the command
jobs           the training job, and its log while it grows
collection     what the command has recorded in the job, copied into its run
recording      what the job itself leaves in its run
submitted      what MLflow gets back: wait, cancel, status
"""
