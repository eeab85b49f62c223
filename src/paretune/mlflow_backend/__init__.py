"""Any MLflow project as a SageMaker training job: `mlflow run URI --backend sagemaker`.

backend.SageMakerBackend              the plugin that MLflow calls
project_job.start                     from project and configuration to a running job
submitted_run.SageMakerSubmittedRun   what MLflow waits for, cancels and asks
configuration.read_configuration      what --backend-config says
command.read_command                  the entry point's command, with files as they are called in the job
environment.read_environment          what the project's environment file means to pip and to an image
container_entrypoint                  what runs in the job, beside the project
collection.Collector                  copies what the command has recorded in its job into its run
"""
