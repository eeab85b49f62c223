"""Search that learns F1 and seconds apart."""
