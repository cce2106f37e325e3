"""What the command line is made of: commands, their parsers, and what they share."""
