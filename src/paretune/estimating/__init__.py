"""How long, how much, does it fit: physics, what earlier jobs have shown, and the tables made of both."""
