"""Training jobs that wait their turn in an AWS Batch queue: the parameter `queue`.

launcher.SageMakerLauncher      the launcher of such jobs: everything but their creation is that of SageMaker's
job.QueuedJob               a job from the queue to the end of the training job that AWS Batch creates
service_jobs.ServiceJobs    the service jobs of one queue: submitted once, found by name, looked at, terminated
checks.queue_findings       what the queue has against a job
"""
