"""The graph of a language model's file, changed for how it is to run."""
