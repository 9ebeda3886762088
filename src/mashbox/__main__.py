"""`python -m mashbox`."""

from mashbox.cli import app

app(prog_name="mashbox")
