"""Programs: a file on a device, its methods compiled and ready to be called."""
