"""asked.jsonl: the points that searches asked for, so that a resumed run asks again.

They rest on random numbers of a library: another version of it could ask for others in
the middle of a run. A line names a case, one of its rounds, and the points.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dp_erm_bench.paths import opened
from dp_erm_bench.results import files

NAME = "asked.jsonl"
KEYS = {"case": str, "round": int, "points": list}

Points = list[dict[str, Any]]


class Asked:
    """What searches have asked for in a results folder.

    Parameters
    ----------
    folder : Path
        The results folder.
    records : bool
        Whether new points are written; a plan writes none.
    """

    def __init__(self, folder: Path, records: bool) -> None:
        self.folder, self.records = folder, records
        self._known: dict[tuple[str, int], Points] = {}
        self._read()

    def _read(self) -> None:
        path = self.folder / NAME
        if path.is_file():
            with files.telling(self.folder), opened(path, self.folder) as file:
                for raw in files.lines_of(file):
                    self._take(raw)

    def _take(self, raw: bytes) -> None:
        """Keep a line that is whole; of one that is torn the points are made anew."""
        row = files.parsed(raw) if files.is_sealed(raw) else None
        if row and all(isinstance(row.get(key), kind) for key, kind in KEYS.items()):
            points = [point for point in row["points"] if isinstance(point, dict)]
            self._known.setdefault((row["case"], row["round"]), points)

    def __call__(self, case: str, number: int, make: Callable[[], Points]) -> Points:
        """Return the points of a round: those that were asked for, else new ones.

        Parameters
        ----------
        case : str
            Digest of what the points depend on, the best setting so far too.
        number : int
            The round.
        make : callable
            Returns the points of a round that nobody has asked for before.
        """
        if (case, number) not in self._known:
            points = make()
            if self.records:
                self._write({"case": case, "round": number, "points": points})
            self._known.setdefault((case, number), points)
        return self._known[case, number]

    def _write(self, row: dict[str, Any]) -> None:
        line = files.sealed(files.line(row))
        with files.telling(self.folder), files.locked(self.folder):
            # Another run of the folder may have asked for them meanwhile.
            self._read()
            if (row["case"], row["round"]) in self._known:
                return
            with open(self.folder / NAME, "a+b", opener=files.careful) as file:
                # A line of a run that was killed may lack its end.
                file.seek(max(file.tell() - 1, 0))
                file.write(b"\n" * (file.read(1) not in (b"", b"\n")) + line)
