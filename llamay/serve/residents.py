"""Residents: the models of one engine by name, and the places they take turns in."""

import time
from collections.abc import Callable

from llamay.errors import Closed
from llamay.serve.resident import Resident
from llamay.serve.scheduling.waiting import Gate, Waiting

LIGHT = 2  # light models at once


class Residents(dict[str, Resident]):
    """A name that is asked for is there from then on, until it means nothing.  The engine's thread owns it."""

    def __init__(self, gate: Gate, places: int, keep_alive: float | None, light: Callable[[str], bool]) -> None:
        """`places` models are loaded at once, and LIGHT of those that are `light` by their name beside them; an idle
        one stays for `keep_alive` seconds, for as long as its place is not needed where that is None.
        """
        super().__init__()
        self._gate, self._places, self._keep_alive, self._light = gate, places, keep_alive, light

    def __missing__(self, name: str) -> Resident:
        made = Resident(name, Waiting(self._gate), self._light(name), keep_alive=self._keep_alive)
        self[name] = made
        return made

    @property
    def idle(self) -> bool:
        """Whether none has anything to do, and none can be loaded."""
        return not any(one.busy or self._can_provide(one) for one in self.values())

    @property
    def patience(self) -> float:
        """Seconds until an idle model is to be given back."""
        now = time.monotonic()
        ends = [one.expiry for one in self.values() if one.scheduler is not None and not one.busy]
        return max(0.001, min([60.0, *(end - now for end in ends if end is not None)]))

    def expire(self) -> None:
        """Gives idle models back, and forgets names that mean nothing."""
        now = time.monotonic()
        for resident in list(self.values()):
            if resident.scheduler is not None and not resident.busy:
                end = resident.expiry
                if end is not None and end <= now:
                    resident.unload(Closed("the model was idle"))
                    resident.keep_alive, resident.dismissed = self._keep_alive, False
            if resident.forgettable:
                del self[resident.name]

    def provide(self, load: Callable[[Resident], None]) -> None:
        """Has the models loaded that are wanted, the one that was asked for first before others.

        Where all places are taken and no model is idle, those that are loaded admit only what came before.
        """
        before: dict[bool, int] = {}  # by whether they are light
        for resident in sorted((one for one in self.values() if one.wanted), key=lambda one: one.first):
            if self._give_place(resident):
                resident.loading = True
                load(resident)
            else:
                before.setdefault(resident.light, resident.first)
        for resident in self.values():
            if resident.scheduler is not None:
                resident.scheduler.admission.before = before.get(resident.light)

    def _give_place(self, resident: Resident) -> bool:
        """A free place, or that of an idle model; False where there is neither."""
        if self._vacancies(resident.light) < 1:
            idle = self._dispensable(resident.light)
            if idle is None:
                return False
            idle.unload(Closed(f"the model's place was given to {resident.name or 'another'}"))
        return True

    def _can_provide(self, resident: Resident) -> bool:
        light = resident.light
        return resident.wanted and (self._vacancies(light) > 0 or self._dispensable(light) is not None)

    def _vacancies(self, light: bool) -> int:
        alike = [one for one in self.values() if one.light == light]
        return (LIGHT if light else self._places) - sum(one.loading or one.scheduler is not None for one in alike)

    def _dispensable(self, light: bool) -> Resident | None:
        """The idle model whose place is given to another first."""
        alike = [one for one in self.values() if one.light == light]
        idle = [one for one in alike if one.scheduler is not None and not one.busy]
        return min(idle, key=lambda one: (one.handles > 0, one.used), default=None)
