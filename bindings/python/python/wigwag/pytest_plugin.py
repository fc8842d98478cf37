"""The pytest plugin: the fixture `wigwag_kit` makes a kit, which lives as long as the test's `async with`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

import pytest

if TYPE_CHECKING:
    from .testing import Kit


@pytest.fixture
def wigwag_kit() -> Callable[..., Kit]:
    """Makes a kit: `async with wigwag_kit(workflows=[order]) as kit: ...`."""

    def made(**facts: Any) -> Kit:
        from .testing import Kit

        return Kit(**facts)

    return made
