"""What reports found, written for a person in the terminal."""
