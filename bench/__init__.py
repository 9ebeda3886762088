"""Our server against llama.cpp's own, on this machine: `python -m bench`. See docs/performance.md."""
