"""A queue in which clients take turns, and so do the calls of a client."""

import collections
from collections.abc import Container, Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """Gives one item of each client in turn; of a client, one of each call in turn.

    So 10,000 items of one call delay those of another client by one each, and those of
    another call of the same client by one each, too.
    """

    def __init__(self):
        # The first client, and its first call, are next.
        self._clients: dict[str, dict[Hashable, collections.deque[Item]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, client: str, call: Hashable, item: Item) -> None:
        """Adds an item, the last one of its call."""
        calls = self._clients.setdefault(client, {})
        calls.setdefault(call, collections.deque()).append(item)
        self._count += 1

    def next(self, passed_over: Container[str] = ()) -> str | None:
        """The client whose turn it is, of those that are not passed over."""
        return next((name for name in self._clients if name not in passed_over), None)

    def pop(self, client: str | None = None) -> Item:
        """Takes the next item, of a client; it and the call are last in line then."""
        client = next(iter(self._clients)) if client is None else client
        calls = self._clients[client]
        call, items = next(iter(calls.items()))
        item = items.popleft()
        del self._clients[client], calls[call]
        if items:
            calls[call] = items
        if calls:
            self._clients[client] = calls
        self._count -= 1
        return item

    def put_first(self, client: str, call: Hashable, item: Item) -> None:
        """Puts an item back, as the next one."""
        calls = self._clients.pop(client, {})
        items = calls.pop(call, collections.deque())
        items.appendleft(item)
        self._clients = {client: {call: items, **calls}, **self._clients}
        self._count += 1

    def remove(self, client: str, call: Hashable) -> int:
        """Removes all items of a call; returns their number."""
        items = self._clients.get(client, {}).pop(call, ())
        if client in self._clients and not self._clients[client]:
            del self._clients[client]
        self._count -= len(items)
        return len(items)
