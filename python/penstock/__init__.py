"""Overlaps data movement with computation, and measures how close to the hardware limit it came.

>>> import penstock
>>> pipeline = penstock.Pipeline(depth=4)  # on the first GPU, or the CPU
>>> stage = pipeline.host_stage("work", lambda item: None)
>>> pipeline.run(100).items
100

Penstock cannot be used after ``os.fork`` in a child of a process that has used it, since threads do
not survive a fork; calls there raise :class:`Unsupported`. Start processes with spawn:
``multiprocessing.set_start_method("spawn")``.
"""

from typing import TYPE_CHECKING

from . import _core, transform, weights
from ._append_attention import append_attention
from ._append_kv import append_kv
from ._attention import attention, scaled_dot_product_attention
from ._core import (Array, Device, File, Item, Ring, RunReport, Stage, Stream, Timeline, copy,
                    iterate)
from ._compress import compress, compressed_bytes_limit, decompress
from ._compressed_experts import CompressedExpertStore
from ._errors import (DeviceError, DeviceLost, Error, ExpertsClosed, InvalidArgument, OutOfMemory,
                      PipelineError, Unsupported)
from ._experts import ExpertCallRecord, ExpertStatistics, ExpertStore, StreamedExperts
from ._files import read_file, write_file
from ._gemm import gemm
from ._kv_cache import KVCache
from ._measure import Doctor, Limits, Overlap, doctor, limits, overlap
from ._memory import empty
from ._moe import moe, moe_combine, moe_experts, moe_plan, moe_workspace_bytes
from ._packed_experts import (DiskExpertStatistics, DiskExpertStore, ExpertFileInfo, ExpertViews,
                              expert_file_info, pack_experts)
from ._pipeline import Pipeline
from ._resample import Sensor, resample
from ._round_routes import round_routes
from ._route import route

__all__ = [
    "Array", "CompressedExpertStore", "Device", "DeviceError", "DeviceLost", "DiskExpertStatistics",
    "DiskExpertStore", "Doctor", "Error", "ExpertCallRecord", "ExpertFileInfo", "ExpertStatistics",
    "ExpertStore", "ExpertViews", "ExpertsClosed", "File", "InvalidArgument", "Item", "KVCache", "Limits",
    "OutOfMemory", "Overlap", "Pipeline", "PipelineError", "Ring", "RunReport", "Sensor", "Stage",
    "Stream", "StreamedExperts", "Timeline", "Unsupported", "__version__", "append_attention",
    "append_kv", "attention", "compress", "compressed_bytes_limit", "copy", "decompress", "doctor",
    "empty", "expert_file_info", "gemm", "iterate", "limits", "moe", "moe_combine", "moe_experts",
    "moe_plan", "moe_workspace_bytes", "overlap", "pack_experts", "read_file", "resample", "round_routes",
    "route", "scaled_dot_product_attention", "transform", "weights", "write_file",
]

__version__ = _core.version()

if TYPE_CHECKING:
    from ._moe_module import MoE as MoE
else:

    def __getattr__(name):
        """MoE is a torch module: importing it imports torch, which the package does not need."""
        if name != "MoE":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from ._moe_module import MoE

        return MoE
