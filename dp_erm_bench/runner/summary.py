"""Why trials of a run are not ok, in few lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dp_erm_bench.results.files import plural
from dp_erm_bench.results.store import FAILED, Store

OTHERS = ("skipped", "diverged")
SHOWN = 8
"""Reasons of a status that are listed."""
MOST = 1000
"""Records of earlier runs that are read for their reasons."""


class Reasons:
    """Why trials are not ok: distinct first lines of messages with their counts."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {}
        self.first: dict[str, str] = {}
        self.earlier: dict[str, str] = {}

    def add(self, status: str, message: str) -> None:
        """Count a trial of a status; the first message of each is kept whole."""
        line = message.partition("\n")[0]
        self.counts.setdefault(status, Counter())[line] += 1
        self.first.setdefault(status, message)

    def recorded(self, key: str, status: str) -> None:
        """Note a trial that an earlier run has left with a status."""
        if status not in ("ok", "planned"):
            self.earlier[key] = status

    def lines(self, store: Store) -> Iterator[str]:
        """Yield a line per status, and one per reason where there are several.

        Of what earlier runs have left, `MOST` records are read.
        """
        keys = [*self.earlier][:MOST]
        for key, record in zip(keys, store.records(keys), strict=True):
            self.add(self.earlier[key], str((record or {}).get("message", "")))
        for status in (*FAILED, *OTHERS):
            found = self.counts.get(status)
            if not found:
                continue
            total, several = f"{status}: {found.total()} trials", len(found) > 1
            if status in FAILED:
                yield f"{total}, the first: {self.first[status]}"
            else:
                yield total if several else f"{total}: {self.first[status]}"
            if several:
                for reason, number in found.most_common(SHOWN):
                    yield f"  {number} x {reason}"
                if len(found) > SHOWN:
                    yield f"  and {plural(len(found) - SHOWN, 'other reason')}"
        if unread := len(self.earlier) - len(keys):
            yield f"and {plural(unread, 'trial')} that ended so in earlier runs"
