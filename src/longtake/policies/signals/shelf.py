"""The signals by name. A new one is one file and one line here."""

from __future__ import annotations

from typing import Final

from longtake.policies.signals.arrival import Chance, Recency
from longtake.policies.signals.frame_redundancy import FrameRedundancy
from longtake.policies.signals.key_difference import KeyDifference
from longtake.policies.signals.key_redundancy import KeyRedundancy
from longtake.policies.signals.lag import Lag
from longtake.policies.signals.prompted import Guidance, Proxy
from longtake.policies.signals.signal import Signal
from longtake.policies.signals.state_drift import StateDrift
from longtake.policies.signals.value_norm import ValueNorm
from longtake.policies.signals.vision_queries import VisionQueries
from longtake.policies.signals.write_residual import WriteResidual

SIGNALS: Final[dict[str, type[Signal]]] = {
    signal.name: signal
    for signal in (
        *(Recency, Chance, ValueNorm, KeyRedundancy, VisionQueries, KeyDifference, Lag),
        *(FrameRedundancy, Proxy, Guidance, WriteResidual, StateDrift),
    )
}
