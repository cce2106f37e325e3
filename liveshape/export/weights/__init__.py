"""Weight matrices on their way into a file: quantized, packed, and made piece by piece."""
