"""SageMaker on this machine: training jobs that really run, one network and one set of folders per instance.

Tests start it with `emulator.Emulator`. The picture, from the outside in:

    emulator.py        what a test holds: starts the service in a process of its own, asks and steers it; client.py is
                       a client for tests that need no more than boto3
    service.py         the HTTP layer: answers, or hands on to moto (S3, logs, iam, sts); calls.py reads and notes
                       requests, disturbances.py lets them fail
    operations.py      CreateTrainingJob and its family; validation.py, account.py and warm_pools.py answer parts of it
    jobs.py            what is known of one job: status words, transitions, times
    training.py        the life of one job, in a thread; instances.py is one attempt at it
    containers.py      the folders and the environment a container finds
    job.sh             namespaces and network of one job; instance.py is one machine in it
    storage.py, logs.py, forward.py     S3, CloudWatch, and ports of this machine inside the instances

Copied from AWS, and from where:

    requests, refused by type, length, pattern and choice        the API model of botocore; check_rules: API reference
    status words, their order, messages, times, FailureReason    DescribeTrainingJob (API reference), public jobs
    names used once; Stop and Update refused after the end       API reference
    spot: interrupted, started again with its checkpoints        user guide, managed spot training
    SIGTERM, a time of grace, SIGKILL; failure file, exit code   user guide, how SageMaker runs your training image
    channels, resourceconfig.json, archives or loose files       the same; where loose files lie is a guess
    warm pools: what fits, how long they are kept and billed     user guide, managed warm pools
    quotas, denied permissions, lack of capacity                 the sentences of public jobs

Nothing was compared with the service itself. A model of our own is: how the instances of a failed job are ended, how
the folders of several instances are merged in the results, and every duration. Not covered: GPUs, EFA, groups of
instances, `Pipe` input, file systems, local daemons of the image.
"""
