"""Integers of results: nanoseconds, bytes and counts, all of which fit into 64 bits."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

MOST = 2**63 - 1

Natural = Annotated[int, Field(ge=0, le=MOST)]
"""An integer of at least 0."""
Positive = Annotated[int, Field(gt=0, le=MOST)]
"""An integer of at least 1."""
Moment = Annotated[int, Field(ge=-MOST, le=MOST)]
"""A time on a clock in nanoseconds."""
