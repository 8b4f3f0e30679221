"""Writes a plan as the flags or the configuration of a training framework, one file for each framework."""

from wirecost.planner.emit.targets import TARGETS, check_target, emitted, emitted_at, restricted

__all__ = ["TARGETS", "check_target", "emitted", "emitted_at", "restricted"]
