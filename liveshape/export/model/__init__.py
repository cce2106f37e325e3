"""The model config, the table of architectures and the checkpoint interface, for any source format."""
