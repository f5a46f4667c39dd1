"""One file a command: its options, one call into the core, and what is printed."""
