"""Code written for executorch.runtime, with only the import changed. Run: python examples/drop_in.py"""

from importlib import resources

import numpy as np

from liveshape.runtime import Runtime  # was: from executorch.runtime import Runtime

program = Runtime.get().load_program(resources.files("liveshape.demo").joinpath("block.pte").read_bytes())
print(program.method_names)
method = program.load_method("forward")
for length in (7, 128):
    (y,) = method.execute([np.ones((1, length, 64), np.float32)])
    print(y.shape)
