"""Judging rankers and bias estimates."""
