"""The operations and their two executors; the only package below which wgpu is imported."""
