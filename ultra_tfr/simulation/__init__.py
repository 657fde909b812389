"""Simulated feedback: click models, dwell time and initial rankers."""
