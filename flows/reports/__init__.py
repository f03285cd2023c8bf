"""What finished homes show: every report returns data, as dataclasses of names and numbers; `flows.cli` renders it."""
