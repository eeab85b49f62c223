"""The command line: a layer over the commands, each of which is defined beside its own code.

main        `main(arguments)` runs one command and returns its exit code; `run` is the `paretune` program
invocation  how commands are typed where this process was started, by `paretune` or by `mlflow run`
"""
