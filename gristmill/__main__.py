"""`python -m gristmill` is the command `gristmill`. Separate: Python looks for a module of this name."""

from gristmill.flows.cli import main

if __name__ == "__main__":
    main()
