"""From a model to a folder that liveshape and ExecuTorch's runners load. The only package that imports torch.

`config`, `safetensors`, `gguf`, `blocks`, `llama2c` and `tokenizer` read checkpoints with numpy alone;
`quantize`, `model` and `lower` need the extra: `pip install 'liveshape[export]'`.
"""
