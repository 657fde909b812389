"""Comparing methods: runs that are kept, statistics, and tables."""
