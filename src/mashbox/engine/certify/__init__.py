"""The certification gate: what is exact about one model, build and machine, seen by trying.

__main__.py   the process: loads the model, runs the gate, writes one JSON line per message
messages.py   those messages
gate.py       the checks in their order, and what follows from them
texts.py      what the checks read
probe.py      one loaded model and a text on it: fill a slot, take an image, put it back
spelling.py   text to tokens and back
prefill.py    how wide a prefill call may be
rows.py       how many rows a decode call may have
images.py     save, restore, cut
answers.py    whole answers through the engine's loop
"""
