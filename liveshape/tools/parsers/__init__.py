"""The parsers of the commands: their flags, and what each flag takes."""
