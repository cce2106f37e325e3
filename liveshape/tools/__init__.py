"""The command line interface: commands, their argument parsers, and shared modules."""
