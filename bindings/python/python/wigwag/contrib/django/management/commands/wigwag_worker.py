"""`manage.py wigwag_worker`: runs the workflows and tasks that the settings name."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.utils.module_loading import import_string

from wigwag import Worker


class Command(BaseCommand):
    """Runs a worker until SIGINT or SIGTERM."""

    help = "Runs the workflows and tasks of WIGWAG_WORKFLOWS and WIGWAG_TASKS."

    def handle(self, *args: Any, **options: Any) -> None:
        """Runs the worker."""
        workflows = [import_string(path) for path in getattr(settings, "WIGWAG_WORKFLOWS", ())]
        tasks = [import_string(path) for path in getattr(settings, "WIGWAG_TASKS", ())]
        self.stdout.write(f"wigwag: {len(workflows)} workflows, {len(tasks)} tasks on {settings.WIGWAG_STORE}")
        Worker(settings.WIGWAG_STORE, workflows=workflows, tasks=tasks).run_forever()
