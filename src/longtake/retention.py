"""Carrying out what a policy decides, step by step, so that an interrupt leaves nothing half done."""

from __future__ import annotations

from collections.abc import Callable

from longtake.backbones.backbone import Backbone, Cursor, Segment
from longtake.memory import Memory
from longtake.policies.policy import Policy
from longtake.probe import Probe
from longtake.trace import Trace

REBASE_AT = 1 << 16
"""Positions from which a stream is moved back to zero. The library forms rotary angles in float32, whose error
grows with the position (4e-3 here, 2e-2 at a million), and a stream of days would lose its neighbours' order."""
ROOM = 256
"""Tokens reserved above budget and chunk for a question and its answer; a longer one makes the slabs grow."""


class Retention:
    """What stays of one stream: its policy at work on its memory.

    Args:
        cursor: gives the stream's present cursor, which moves where positions do.
    """

    def __init__(self, backbone: Backbone, policy: Policy, memory: Memory, cursor: Callable[[], Cursor]) -> None:
        self._backbone, self._policy, self._memory, self._cursor = backbone, policy, memory, cursor
        self.probe = Probe(backbone, memory, cursor)
        """Looks at the stream with the model's eyes."""
        self._trace = Trace()  # of the newest chunk
        self._due: int | None = None  # a chunk that came in and on which the policy has not decided yet

    @property
    def unfinished(self) -> bool:
        """Whether an interrupt broke off a step."""
        return self._due is not None

    def begin(self) -> None:
        """The opening is held, and no frame yet."""
        self._opening_tokens = self._memory.held
        self._policy.begin(self._memory, self.probe)

    def prepare(self, chunk_tokens: int) -> None:
        """Make room for chunks of this many tokens.

        Raises:
            LongtakeError: when the budget is too small for them.
        """
        layers = len(self._memory.slabs)
        self._policy.check(chunk_tokens, self._opening_tokens, layers)
        most = self._policy.held_at_most(self._opening_tokens, layers)
        if most is not None:
            self._memory.reserve([tokens + chunk_tokens + ROOM for tokens in most])

    def prefill(self, segment: Segment) -> None:
        """Run a chunk through the model into the memory, and see on the way what the policy wants to see."""
        trace, backbone = Trace(), self._backbone
        sights = self._policy.sights
        with self._memory.appending(segment.rows) as cache, trace.following(backbone, segment, sights) as followed:
            backbone.forward(followed, cache)
        self._trace = trace

    def decide(self, chunk: int | None = None) -> None:
        """Let the policy look at the chunk that came in. Without one, finish a step that an interrupt broke off."""
        self._due = self._due if chunk is None else chunk
        self._memory.settle()
        if self._due is None:
            return
        policy, memory, cursor = self._policy, self._memory, self._cursor()
        policy.observe(memory, self._due, self._trace)
        keep = policy.keep(memory)
        if keep is not None:
            memory.evict(keep)
        positions = policy.positions(memory)
        if positions is not None:
            memory.reindex(positions)
        reach = memory.reach
        if positions is not None or int(reach.max()) >= cursor.reach:
            self._backbone.resume(cursor, reach)
        self._due = None
        if cursor.reach > REBASE_AT:
            amount = -cursor.reach
            memory.shift(amount)
            self._backbone.shift(cursor, amount)
