"""Export: converts a checkpoint or a torch module to a `.pte` that liveshape and ExecuTorch's runners load.

Checkpoints are converted with numpy and flatbuffers; only `lower`, for a user's own torch modules, imports torch:
`pip install 'liveshape[torch]'`, with the CPU build of torch before it (docs/export.md).
"""
