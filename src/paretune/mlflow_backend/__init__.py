"""Any MLflow project as a SageMaker training job: `mlflow run URI --backend sagemaker`."""
