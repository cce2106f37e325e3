"""The `.pte` writer: flatbuffers, the Vulkan delegate's blob, memory planning, and named data segments."""
