"""How a process that serves treats what it has made."""

from __future__ import annotations

import gc

from antiphon.server.serving import NEW_OBJECTS, seldom_collected


def test_what_was_there_before_is_not_looked_through_while_it_serves() -> None:
    before = gc.get_threshold(), gc.get_freeze_count()
    circle: list[object] = []
    circle.append(circle)
    with seldom_collected():
        assert all(one is not circle for one in gc.get_objects())
        assert gc.get_threshold() == (NEW_OBJECTS, *before[0][1:])
    assert any(one is circle for one in gc.get_objects())
    assert (gc.get_threshold(), gc.get_freeze_count()) == before
