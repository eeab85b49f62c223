"""The command line, a layer over the functions of `import paretune`.

main          `main(arguments)` runs one command and gives its exit code; `run` is the `paretune` command
requests/     what was typed, checked
commands/     what commands do for which Python has no function
output/       what a person or a program reads
"""
