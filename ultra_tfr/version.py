"""The version of the package; the only place that holds it."""

__version__ = "0.2.0"
