"""From a model to a folder that liveshape and ExecuTorch's runners load.

Checkpoints are read and written with numpy and flatbuffers; only `lower`, for modules of the user's own, imports torch:
`pip install 'liveshape[export]'`.
"""
