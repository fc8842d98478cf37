"""Loggers: `wigwag` of the package, `wigwag.run` of users' code in a run. Nothing is configured by import."""

from __future__ import annotations

import logging
from typing import Any, Mapping, MutableMapping

logger = logging.getLogger("wigwag")
_runs = logging.getLogger("wigwag.run")


class RunLogger(logging.LoggerAdapter):  # type: ignore[type-arg]
    """A logger whose records carry `run_id`, `workflow`, `step` and `attempt`; silent while a function is replayed."""

    def __init__(self, context: Any) -> None:
        super().__init__(_runs, {})
        self._context = context

    def isEnabledFor(self, level: int) -> bool:
        """Whether a record of this level is written now."""
        return not getattr(self._context, "is_replaying", False) and _runs.isEnabledFor(level)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Adds the facts of the run."""
        given: Mapping[str, Any] = kwargs.get("extra") or {}
        context = self._context
        facts = {
            "run_id": context.workflow_id,
            "workflow": context.workflow,
            "step": context.step_name,
            "attempt": context.attempt,
        }
        kwargs["extra"] = {**facts, **given}
        return msg, kwargs
