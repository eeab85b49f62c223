"""The command `mcp`: a server for agents (Model Context Protocol, stdio), which may launch quotes within a budget.

command   registers the command
server    the tools that an agent sees, with types, bounds and choices of their arguments
session   admits quotes within the dollars of a session, which are in the ledger of studies
front     Front: the front of a recorded study, or of any table of runs; also paretune.front of the Python interface
quoting   turns a request of an agent into a quote
quotes    Quotes: the highest cost of a command, signed, so that nothing else can be launched in its name
commands  CommandProcess: a `paretune` command in a process of its own
"""
