"""MLflow projects of other people as jobs: their commands, their environments, and what they record.

project                a project's entry points, parameters and files
container_entrypoint   the program that runs its command inside a job
collection             copies what the command has recorded into the job's run
"""
