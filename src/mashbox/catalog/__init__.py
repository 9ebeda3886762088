"""Models by name: a catalog, downloads, GGUF headers and memory estimates. No model library here."""
