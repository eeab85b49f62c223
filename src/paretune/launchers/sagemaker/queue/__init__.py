"""Training jobs that wait their turn in an AWS Batch queue: the parameter `queue`.

queued_jobs    QueuedJobs: submits jobs to a queue and finds them again; QueuedJob: one of them, from queue to end
service_jobs   the service jobs of one queue: submitted once, found by name, described at a limited rate
"""
