"""The command `demo`: a whole simulated study with nothing to configure."""
