"""The command `mcp`: a server for agents (Model Context Protocol, stdio), which may launch within a file of budgets."""
