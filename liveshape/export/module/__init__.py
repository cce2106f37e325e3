"""Modules of the user's own, through torch.export. Only this folder of the exporter knows torch."""
