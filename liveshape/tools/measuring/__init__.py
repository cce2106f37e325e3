"""What the commands measure with."""
