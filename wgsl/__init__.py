"""The WGSL kernels, and the composer that turns a template into one kernel."""
