"""A server for agents (Model Context Protocol, stdio): they may look, and may launch what was quoted, within a budget.

quotes.Quotes        what a command may cost at most, signed, so that nothing else can be launched in its name
session.Session      admits quotes within the dollars of a session, and knows what was launched
commands.Command     a `paretune` command that runs as a process of its own
server.serve         the tools that an agent sees
"""
