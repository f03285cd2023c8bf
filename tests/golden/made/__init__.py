"""The parts of the fixture: each module makes documents of one kind."""
