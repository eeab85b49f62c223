"""Where jobs run. A launcher is one file here and one fixture of the contract suite."""
