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

What follows AWS is written from its documentation and its API model; nothing was compared with the service itself. A
model of our own is: how the instances of a failed job are ended, how the folders of several instances are merged in the
results, and every duration. Not covered: GPUs, EFA, `Pipe` input, file systems, local daemons of the image.
"""
