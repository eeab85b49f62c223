"""Any MLflow project as a SageMaker training job: `mlflow run URI --backend sagemaker`.

backend.SageMakerBackend              the plugin that MLflow calls
configuration.read_configuration      the checked keys of --backend-config, and whether the job may log itself
project_job.start                     starts the job of a project, or adopts one that is running
submitted_run.SageMakerSubmittedRun   the run that MLflow waits for and cancels
"""
