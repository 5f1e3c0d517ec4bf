"""Which unit the points are in, judged by two things that hardly vary: how high a lidar stands and how far it sees."""

from __future__ import annotations

from dataclasses import dataclass

from copilot4d.doctor.finding import Finding, problem

METRES_PER = {"metres": 1.0, "millimetres": 0.001, "centimetres": 0.01, "feet": 0.3048, "kilometres": 1000.0}

_MOUNTED_M = (0.5, 4.5)  # from a small car's bumper to a lorry's roof
_SEES_M = (8.0, 500.0)  # the 99th percentile of a sweep's ranges
_AT_ORIGIN = 0.02  # an origin nearer to the ground than this fraction of the 99th percentile tells nothing
_OWN_DATA = {
    name: f" (own data whose poses are in {name} too: `units: {short}` in copilot4d.yaml)"
    for name, short in {"millimetres": "mm", "centimetres": "cm"}.items()
}


@dataclass(frozen=True, kw_only=True)
class UnitGuess:
    """The unit that explains a sweep best; None where no unit does, or where two do and metres is not one of them."""

    name: str | None

    @property
    def metres_per_unit(self) -> float:
        """1 where the unit is unknown."""
        return METRES_PER[self.name] if self.name else 1.0


def guess_unit(far_range: float, origin_height: float | None) -> UnitGuess:
    """The unit of points whose 99th range percentile and height above the ground are given, in that unit.

    Metres win wherever they are possible. The height decides between feet and metres: a lidar 5.7 above the ground
    stands on no vehicle in metres, and at 1.74 m in feet.
    """
    fits = [name for name in METRES_PER if _plausible(METRES_PER[name], far_range, origin_height)]
    if "metres" in fits:
        return UnitGuess(name="metres")
    return UnitGuess(name=fits[0] if len(fits) == 1 else None)


def check_units(where: str, guess: UnitGuess, far_range: float, origin_height: float | None) -> list[Finding]:
    """A problem unless the points are in metres."""
    if guess.name == "metres":
        return []
    height = "" if origin_height is None else f", and the frame's origin is {origin_height:.4g} above the ground"
    evidence = f"99% of the returns are nearer than {far_range:.4g}{height}"
    if guess.name is None:
        return [problem(
            "units-unknown", where, "The points are in no unit that fits a vehicle's lidar",
            f"{evidence}; in metres a lidar stands 0.5 to 4.5 above the ground and sees 8 to 500 far",
            "find out the unit of the coordinates and multiply them so that they are metres",
        )]  # fmt: skip
    factor = METRES_PER[guess.name]
    return [problem(
        f"units-{guess.name}", where, f"The points are in {guess.name}, not in metres",
        f"{evidence}: read as {guess.name}, that is {far_range * factor:.0f} m"
        + ("" if origin_height is None else f" and {origin_height * factor:.2f} m"),
        f"multiply x, y, z by {factor:g}" + _OWN_DATA.get(guess.name, ""),
    )]  # fmt: skip


def _plausible(metres_per_unit: float, far_range: float, origin_height: float | None) -> bool:
    if not _SEES_M[0] <= far_range * metres_per_unit <= _SEES_M[1]:
        return False
    if origin_height is None or abs(origin_height) < _AT_ORIGIN * far_range / 10:
        return True
    # Metres get the benefit of the doubt for low robots; another unit must fit a vehicle.
    lowest = 0.0 if metres_per_unit == 1.0 else _MOUNTED_M[0]
    return lowest <= abs(origin_height) * metres_per_unit <= _MOUNTED_M[1]
