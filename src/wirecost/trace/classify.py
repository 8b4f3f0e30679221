"""Recognises communication by the names of kernels, annotations and operators."""

from __future__ import annotations

import re
from collections.abc import Iterable

from wirecost.trace.categories import KERNEL
from wirecost.trace.families import (
    ANNOTATION,
    FAMILIES,
    FUSED_COMPUTE,
    INDUCTOR,
    LASTING,
    LOCAL,
    LOOKS_LIKE,
    NOT_A_COLLECTIVE,
    NOT_AN_OPERATOR,
    OPERATOR,
    PEER_COPY,
)
from wirecost.trace.names import function_name
from wirecost.trace.source import TraceError


class Classifier:
    """Recognises communication by name. `patterns` are regular expressions of the user, in addition to the known
    names.

    Raises:
        TraceError: for an invalid regular expression.
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        flags = re.IGNORECASE
        self._families = [(family, re.compile(p, flags)) for family, p in FAMILIES.items()]
        self._excluded = re.compile(NOT_A_COLLECTIVE, flags)
        self._fused = re.compile(FUSED_COMPUTE, flags)
        self._inductor = re.compile(INDUCTOR)
        self._local = re.compile(LOCAL, flags)
        self._annotation = re.compile(ANNOTATION, flags)
        self._lasting = re.compile(LASTING, flags)
        self._operator = re.compile(OPERATOR, flags)
        self._not_operator = re.compile(NOT_AN_OPERATOR, flags)
        self._peer_copy = re.compile(PEER_COPY, flags)
        self._looks_like = re.compile(LOOKS_LIKE, flags)
        self._users: list[re.Pattern[str]] = []
        for pattern in patterns:
            try:
                self._users.append(re.compile(pattern))
            except re.error as error:
                raise TraceError(
                    f"communication pattern '{pattern}' is not a regular expression: {error}"
                ) from error

    def by_pattern(self, name: str) -> str | None:
        """Returns the user's pattern that a name matches; None if none matches."""
        return next((p.pattern for p in self._users if p.search(name)), None)

    def family(self, name: str) -> str | None:
        """Returns the family of communication kernels that a kernel's name belongs to; None for compute."""
        if self._inductor.match(name):
            return None
        function = function_name(name)
        if not function or self._excluded.search(function):
            return None
        for family, pattern in self._families:
            if pattern.search(function):
                if family == "collective by its name" and (
                    self._fused.search(function) or self._local.search(function)
                ):
                    return None
                return family
        return None

    def communicates(self, name: str, kind: int = KERNEL) -> bool:
        """Returns whether a device event or annotation is communication, judged by its name only.

        Copies and fills are communication only if a pattern of the user matches.
        """
        if self.by_pattern(name) is not None:
            return True
        return kind == KERNEL and (self.annotates(name) or self.family(name) is not None)

    def annotates(self, name: str) -> bool:
        """Returns whether an annotation marks a communication, as `nccl:all_reduce` does."""
        return self._annotation.search(name) is not None

    def annotates_call(self, name: str) -> bool:
        """Returns whether an annotation lasts no longer than the call that launches a communication."""
        return self.annotates(name) and self._lasting.search(name) is None

    def operator(self, name: str) -> bool:
        """Returns whether an operator of the host communicates: `c10d::allreduce_`, `vllm::all_reduce`."""
        return self._operator.search(name) is not None and self._not_operator.search(name) is None

    def local(self, name: str) -> bool:
        """Returns whether a kernel works within its own GPU (a fill, a copy, a product), whatever launched it."""
        return (
            self._local.search(name.split("<", 1)[0]) is not None
            or self._excluded.search(function_name(name)) is not None
        )

    def copies_between_gpus(self, name: str) -> bool:
        return self._peer_copy.search(name) is not None

    def looks_like_communication(self, name: str) -> bool:
        """Returns whether the name of a kernel that counts as compute suggests a communication."""
        if self._inductor.match(name):
            return False
        function = function_name(name)
        return (
            self._looks_like.search(function) is not None
            and self._excluded.search(function) is None
            and re.search(r"(?<![a-z0-9])at::native", function) is None
        )
