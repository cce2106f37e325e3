"""The commands of the command line, one per file: each a function that prints and returns an exit code."""
