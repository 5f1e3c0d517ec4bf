"""`copilot4d doctor`: looks at a data set and says what is wrong with it, how that is known, and how to fix it."""

from copilot4d.doctor.drive import DriveReport, examine_drive
from copilot4d.doctor.estimate import write_estimated_poses
from copilot4d.doctor.examine import Report, examine
from copilot4d.doctor.finding import Finding, grouped

__all__ = ["DriveReport", "Finding", "Report", "examine", "examine_drive", "grouped", "write_estimated_poses"]
