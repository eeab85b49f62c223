"""SageMaker on this machine: training jobs that really run, one set of folders and processes per instance.

Tests start it with `emulator.Emulator`. Its modules, from the outside in:

    emulator.py        what a test uses: starts the service in another process, queries and controls it
    service.py         the HTTP layer: records requests, lets them fail, answers them, or passes them to moto (S3, logs,
                       iam, sts)
    jobs.py            CreateTrainingJob and its family: rules, status words, transitions, times, warm pools
    training.py        the life of one job, in a thread: download, containers, logs, upload
    machine.py         the folders, the environment and the namespaces of one instance

What was copied from AWS, and from where:

    requests, refused by length, pattern and choice              the API model of botocore; check: API reference
    status words, their order, messages, times, FailureReason    DescribeTrainingJob (API reference), public jobs
    names used once; Stop and Update refused after the end       API reference
    spot: interrupted, started again with its checkpoints        user guide, managed spot training
    SIGTERM, a time of grace, SIGKILL; failure file, exit code   user guide, how SageMaker runs your training image
    channels, resourceconfig.json, results as loose files        the same; where the files lie is a guess
    roles that exist, actions that are denied                    IAM: error codes and messages
    warm pools: what fits, how long they are kept and billed     user guide, managed warm pools

No behavior was compared with the service itself. Three models are our own: how the instances of a failed job are ended,
how the folders of several instances are merged in the results, and every duration. It does not cover lack of capacity,
quotas, GPUs, EFA, groups of instances, `Pipe` input, file systems, and local daemons of the image.
"""
