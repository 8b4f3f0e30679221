"""Decodes events directly into the fields needed of their category.

Most events of a trace are skipped. An event that is unusual in any way (another phase, a missing or odd field, an
unknown category) fits none of these types and is decoded as a plain `Event`.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Protocol, Union

import msgspec

from wirecost.trace.arguments import Described
from wirecost.trace.categories import (
    CPU_ANNOTATION,
    DEVICE_CATEGORIES,
    GPU_ANNOTATION,
    OPERATORS,
    OTHER_CATEGORIES,
    RUNTIME_CATEGORIES,
)

Raw = msgspec.Raw
# The ids of processes, threads and streams: kineto writes numbers and texts.
Id = int | str
# A correlation or external id; beyond that it is broken.
Number = Annotated[int, msgspec.Meta(ge=-1, lt=10**18)]


class Event(msgspec.Struct, gc=False):
    """The fields needed of any event. Numbers and names stay text until the event turns out to be relevant."""

    ph: str | None = None
    cat: str | None = None
    name: Raw = Raw()
    pid: Raw = Raw()
    tid: Raw = Raw()
    ts: Raw = Raw()
    dur: Raw = Raw()
    args: Raw = Raw()


class CallArguments(msgspec.Struct, gc=False, frozen=True):
    """The fields needed of the arguments of a call of the device's runtime."""

    correlation: Number = -1


class WorkArguments(Described, gc=False, frozen=True):
    """The fields needed of the arguments of a device event."""

    correlation: Number = -1
    external: Number = msgspec.field(default=-1, name="External id")
    external_old: Number = msgspec.field(default=-1, name="external id")
    grid: tuple[Number, Number, Number] | None = None


class Work(msgspec.Struct, gc=False):
    """A device event."""

    ph: Literal["X"]
    name: str
    pid: Id
    tid: Id
    ts: Raw
    dur: Raw
    args: WorkArguments = WorkArguments()


class RuntimeCall(msgspec.Struct, gc=False):
    """A call of the device's runtime."""

    ph: Literal["X"]
    name: str
    pid: Id
    tid: Id
    ts: Raw
    dur: Raw
    args: CallArguments = CallArguments()


class Operator(msgspec.Struct, gc=False):
    """An operator of the host, of which mostly the name is enough."""

    name: str


class Passed(msgspec.Struct, gc=False):
    """An event of a known category that the answer doesn't need."""


class Noted(msgspec.Struct, gc=False):
    """An annotation: few enough to be taken one by one."""

    cat: ClassVar[str]
    name: Raw
    pid: Raw
    tid: Raw
    ts: Raw
    ph: str | None = None
    dur: Raw = Raw()
    args: Raw = Raw()


Plain = Event | Noted


def _kinds() -> dict[type[msgspec.Struct], str]:
    """Returns a type for every known category, and its category."""
    bases: dict[str, type[msgspec.Struct]] = dict.fromkeys(OTHER_CATEGORIES, Passed)
    bases |= dict.fromkeys(OPERATORS, Operator) | dict.fromkeys(RUNTIME_CATEGORIES, RuntimeCall)
    bases |= dict.fromkeys(DEVICE_CATEGORIES, Work) | dict.fromkeys((CPU_ANNOTATION, GPU_ANNOTATION), Noted)
    categories = {}
    for category in sorted(bases):
        name = "".join(filter(str.isalnum, category.title()))
        kind = msgspec.defstruct(
            name,
            (),
            bases=(bases[category],),
            tag_field="cat",
            tag=category,
            gc=False,
            namespace={"cat": category},
        )
        categories[kind] = category
    return categories


CATEGORY = _kinds()
_Any = Union[tuple(CATEGORY)]  # noqa: UP007 - made of types that are only known here
# So many slices without a single typed event, and the file is of another kind.
_MOST_ODD = 16


class Decoder(Protocol):
    """Decodes the text of a list of events; `event_decoder` decodes the text of a single event."""

    event_decoder: msgspec.json.Decoder[Any]

    def __call__(self, text: bytes) -> list[Any]:
        """Returns the events of a list. Raises msgspec.MsgspecError or RecursionError if the text is no valid
        list.
        """
        ...


class PlainDecoder:
    """Decodes every event as one type, whatever its category."""

    def __init__(self, event_type: type[msgspec.Struct]) -> None:
        self._list = msgspec.json.Decoder(list[event_type]).decode
        self.event_decoder = msgspec.json.Decoder(event_type)

    def __call__(self, text: bytes) -> list[Any]:
        return self._list(text)


class EventDecoder:
    """Decodes a list of events, each into its category's type if it fits and into `Event` otherwise."""

    def __init__(self) -> None:
        self._typed = msgspec.json.Decoder(list[_Any]).decode
        self._typed_event = msgspec.json.Decoder(_Any).decode
        self._plain = msgspec.json.Decoder(list[Event]).decode
        self._raw = msgspec.json.Decoder(list[Raw]).decode
        self.event_decoder = msgspec.json.Decoder(Event)
        self._odd = 0

    def __call__(self, text: bytes) -> list[Any]:
        """Returns the events of a list.

        Raises:
            msgspec.MsgspecError: if the text is not a list of events.
            RecursionError: if the text is nested too deeply.
        """
        if self._odd >= _MOST_ODD:
            return self._plain(text)
        try:
            return self._typed(text)
        except msgspec.MsgspecError:
            events = self._mixed(self._raw(text))
        self._odd = self._odd + 1 if all(type(event) is Event for event in events) else 0
        return events

    def _mixed(self, elements: list[Raw]) -> list[Any]:
        typed, plain = self._typed_event, self.event_decoder.decode
        events: list[Any] = []
        for element in elements:
            try:
                event = typed(element)
            except msgspec.MsgspecError:
                event = plain(element)
            events.append(event)
        return events

    def again(self, text: bytes, rows: list[int]) -> list[Event]:
        """Returns the events in some rows of a list that was decoded before, as plain events."""
        elements = self._raw(text)
        return [self.event_decoder.decode(elements[row]) for row in rows]
