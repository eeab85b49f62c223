"""SageMaker on this machine: training jobs that really run, with folders and processes for each instance.

Tests start it with `emulator.Emulator`. Its modules, from the outermost to the innermost:

    emulator.py        the part that a test uses: starts the service in another process, queries and controls it
    service.py         the HTTP layer: records requests, makes them fail, answers them, or passes them to moto (S3,
                       logs, iam, sts)
    calls.py           requests, and errors in each service's own form
    jobs.py            CreateTrainingJob and its family: rules, statuses, transitions, times, warm pools
    training.py        the life of one job, in a thread: download, containers, logs, upload
    machine.py         the folders, the environment and the namespaces of one instance

Copied from AWS, and the source:

    limits of requests: lengths, patterns and choices            the API model of botocore; check: API reference
    statuses, their order, messages, times, FailureReason        DescribeTrainingJob (API reference), public jobs
    unique names; Stop and Update refused after the end          API reference
    spot: interrupted, started again with its checkpoints        user guide, managed spot training
    SIGTERM, grace period, SIGKILL; failure file, exit code      user guide, how SageMaker runs your training image
    channels, resourceconfig.json, results as single files       the same; the folders of the results are a guess
    missing roles and denied actions                             IAM: error codes and messages
    warm pools: which jobs match, how long they are kept, bill   user guide, managed warm pools

No behavior was compared with the service itself. Three things are our own inventions: how the instances of a failed job
end, how the folders of several instances are merged in the results, and all durations. The emulator does not cover lack
of capacity, quotas, GPUs, EFA, groups of instances, `Pipe` input, file systems, and local daemons of the image.
"""
