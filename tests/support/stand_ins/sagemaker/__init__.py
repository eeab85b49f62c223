"""SageMaker on this machine: training jobs that really run, one set of folders and processes per instance.

Tests start it with `emulator.Emulator`. The picture, from the outside in:

    emulator.py        what a test holds: starts the service in a process of its own, asks and steers it
    service.py         the HTTP layer: notes requests, lets them fail, answers them, or hands them on to moto (S3, logs,
                       iam, sts)
    jobs.py            CreateTrainingJob and its family: rules, status words, transitions, times, warm pools
    training.py        the life of one job, in a thread: channels down, containers, logs, results up
    machine.py         the folders, the environment and the namespaces of one instance

Copied from AWS, and from where:

    requests, refused by length, pattern and choice              the API model of botocore; check: API reference
    status words, their order, messages, times, FailureReason    DescribeTrainingJob (API reference), public jobs
    names used once; Stop and Update refused after the end       API reference
    spot: interrupted, started again with its checkpoints        user guide, managed spot training
    SIGTERM, a time of grace, SIGKILL; failure file, exit code   user guide, how SageMaker runs your training image
    channels, resourceconfig.json, results as loose files        the same; where the files lie is a guess
    roles that exist, actions that are denied                    IAM: error codes and messages
    warm pools: what fits, how long they are kept and billed     user guide, managed warm pools

Nothing was compared with the service itself. A model of our own is: how the instances of a failed job are ended, how
the folders of several instances are merged in the results, and every duration. Not covered: lack of capacity, quotas,
GPUs, EFA, groups of instances, `Pipe` input, file systems, local daemons of the image.
"""
