"""Helpers for web frameworks. Each is imported on its own, and needs the framework."""
