"""Texts to vectors: an encoder program with its tokenizer and its pooling."""
