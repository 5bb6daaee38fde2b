"""A laboratory for small sequence models: whole sweeps trained as populations."""

__version__ = "0.1.0"
