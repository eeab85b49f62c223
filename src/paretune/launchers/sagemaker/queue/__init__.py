"""Training jobs that wait their turn in an AWS Batch queue: the parameter `queue`.

queued_jobs    QueuedJobs: submits jobs to a queue and finds them again
job            QueuedJob: a job from the queue to the end of the training job that AWS Batch creates
service_jobs   the service jobs of one queue: submitted once, found by name, described at a limited rate
checks         whether the queue takes a job
"""
