"""Results files. All benchmarks, in Python and in C++, write the same shape."""

import json
import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .. import _core
from .._errors import InvalidArgument
from .._measure import Limits, doctor
from ._floor import reason_to_drop


def document(name: str, device: _core.Device, ceilings: Limits, seed: int,
             peers: dict[str, str]) -> dict[str, Any]:
    """A results document without cases yet."""
    machine, build = doctor().machine, _core.build_info()
    rates = ceilings.data["rates"]
    return {
        "schema": 1,
        "name": name,
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": build["commit"],
        "machine": {
            "gpu": device.capabilities["name"] if device.kind == "cuda" else "none",
            "driver": machine["cuda"]["driver"] or "",
            "cuda": build["cuda"],
            "cpu": machine["host"]["cpu"],
            "ceilings": {f"{ceiling}_GBps": round(rate["bytes_per_second"] * 1e-9, 2)
                         for ceiling, rate in rates.items()},
        },
        "seed": seed,
        "peers": peers,
        "cases": [],
    }


def add(results: dict[str, Any], case: dict[str, Any]) -> bool:
    """Adds a checked case whose time is that of its call; one that beat its floor goes to the dropped
    ones, with the reason, which is printed. True if it was kept."""
    us, floor_us = case["ours"]["call_us"], case.get("floor_us")
    reason = reason_to_drop(us, floor_us) if floor_us else ""
    if not reason:
        results["cases"].append(case)
        return True
    print(f"{case['case']}: dropped: {reason}", flush=True)
    results.setdefault("dropped", []).append(
        {"case": case["case"], "reason": reason, "us": us, "floor_us": floor_us})
    return False


def check_writable(option: str, path: Path) -> None:
    """Checks the path before minutes of measuring."""
    folder = path.parent
    if path.is_dir():
        raise InvalidArgument(option, "a file", f"{path}, a directory")
    if not folder.is_dir():
        raise InvalidArgument(option, "a file in a directory that exists", str(path))
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InvalidArgument(option, "a file in a writable directory", str(path))


def write(path: Path, content: dict[str, Any]) -> None:
    """Replaces the file atomically: after a crash there is the old one or the new one."""
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    handle, temporary = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
