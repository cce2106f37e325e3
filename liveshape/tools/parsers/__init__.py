"""argparse parsers of the commands: flags, types and help."""
