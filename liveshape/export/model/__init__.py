"""What a decoder is, whatever file it comes from: its config, its family, its tensors."""
