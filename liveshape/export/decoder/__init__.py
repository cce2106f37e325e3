"""The graph of a decoder-only transformer, written in the operator patterns that lowering fuses."""
