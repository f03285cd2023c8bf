"""What finished homes show: every report returns data, as dataclasses of names and numbers; `gristmill.flows.cli`
renders it."""
