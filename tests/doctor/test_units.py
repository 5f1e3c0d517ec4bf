"""Units are told by how high a lidar stands and how far it sees."""

import pytest

from copilot4d.doctor.units import check_units, guess_unit


@pytest.mark.parametrize(
    ("far", "height", "unit"),
    [
        (80.0, 1.73, "metres"), (60.0, 0.2, "metres"), (200.0, 4.2, "metres"), (80.0, None, "metres"),
        (80_000.0, 1730.0, "millimetres"), (45_000.0, 1900.0, "millimetres"),
        (8_000.0, 173.0, "centimetres"), (262.0, 5.68, "feet"), (0.08, 0.00173, "kilometres"),
        (80_000.0, None, "millimetres"),
    ],
)  # fmt: skip
def test_the_unit_is_found(far, height, unit):
    assert guess_unit(far, height).name == unit


def test_no_unit_is_better_than_a_wrong_one():
    assert guess_unit(80.0, 60.0).name is None  # 60 above the ground: not feet (18 m), not centimetres (sees 0.8 m)
    assert guess_unit(80.0, 60.0).metres_per_unit == 1.0
    assert [f.code for f in check_units("d", guess_unit(80.0, 60.0), 80.0, 60.0)] == ["units-unknown"]


def test_the_finding_names_the_factor_and_metres_are_silent():
    (finding,) = check_units("d", guess_unit(80_000.0, 1730.0), 80_000.0, 1730.0)
    assert finding.code == "units-millimetres"
    assert finding.severity == "problem"
    assert "multiply x, y, z by 0.001" in finding.remedy
    assert "units: mm" in finding.remedy
    assert "1.73 m" in finding.evidence
    assert check_units("d", guess_unit(80.0, 1.7), 80.0, 1.7) == []
