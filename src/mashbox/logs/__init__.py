"""How both processes log: lines for people or JSON, written aside, and nothing of a request's content."""
