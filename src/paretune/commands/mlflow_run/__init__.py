"""Any MLflow project as a SageMaker training job: `mlflow run URI --backend sagemaker`.

backend.SageMakerBackend              the plugin that MLflow calls
project_job.start                     from project and configuration to a running job
submitted_run.SageMakerSubmittedRun   what MLflow waits for, cancels and asks
configuration.read_configuration      what --backend-config says
"""
