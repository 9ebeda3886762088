"""Many conversations on one small prompt cache, for as long as wanted: `python -m soak --help`."""
