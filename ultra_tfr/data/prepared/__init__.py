"""A click log that is grouped, split and measured already, as files."""
