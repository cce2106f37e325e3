"""One plan on one device: encode, submit, read back."""
