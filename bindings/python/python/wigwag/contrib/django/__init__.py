"""Wigwag in Django: `manage.py wigwag_worker`, and `client()` for views.

Settings: `WIGWAG_STORE`, the URL of the store; `WIGWAG_WORKFLOWS` and `WIGWAG_TASKS`, dotted paths of what a worker runs.
Add `wigwag.contrib.django` to `INSTALLED_APPS`.
"""

from __future__ import annotations

from ... import sync


def client() -> sync.WorkflowClient:
    """The client of the store that the settings name, for views and scripts."""
    from django.conf import settings

    return sync.WorkflowClient(settings.WIGWAG_STORE)
