"""What an hour costs: lists of prices, read, kept and asked for; recorded runs at other prices."""
