"""Do the page's engine, its speed and its start-up self-test hold on a machine with a real GPU?

`bench/device.sh pack` writes all that this needs into one file: project, Python, packages, browser and bundles.
`bench/device.sh run` unpacks it on the other machine, which needs no network, starts Chromium on the GPU through Vulkan
and runs the parts below, each within its own time and all within eight minutes. What is finished is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NAME = "device"


def summarise(result: Mapping[str, Any]) -> str:
    """The parts as a table."""
    lines = [
        f"{NAME}: {result['adapter']['name']}, {result['seconds']:.0f} of {60 * result['minutes']:.0f} s"
    ]
    for part in result["parts"]:
        took = f"{part['seconds']:.0f} of {part['limit_s']} s"
        lines.append(f"  {part['name']:<14}{part['status']:<10}{took:>13}  {part['command']}")
    return "\n".join(lines)
