"""Lowers a user's own torch modules through torch.export. Only this folder of the exporter imports torch."""
