"""The WebGPU executor: adapters, device buffers, compiled command lists, tuning."""
