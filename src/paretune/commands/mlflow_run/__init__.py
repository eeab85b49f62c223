"""Any MLflow project as a SageMaker training job: `mlflow run URI --backend sagemaker`, the same job as `train` makes.

backend.SageMakerBackend              the plugin that MLflow calls
project_job.start                     from MLflow's arguments to a job that runs
submitted_run.SageMakerSubmittedRun   the run that MLflow waits for and cancels
"""
