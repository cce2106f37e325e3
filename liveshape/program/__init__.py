"""A file on a device: its methods loaded, ready to be called."""
