"""Toy worlds pushed into sessions."""

from __future__ import annotations

from dataclasses import dataclass

from longtake.session import Session
from longtake.toy import World
from longtake.video.chunker import Chunk
from longtake.video.frame import Frame


@dataclass
class Pushed:
    """What a session was shown."""

    frames: list[Frame]
    per_chunk: int

    def chunk(self, number: int) -> Chunk:
        return Chunk(tuple(self.frames[number * self.per_chunk : (number + 1) * self.per_chunk]), number)


def pushed(session: Session, seconds: float, seed: int = 21) -> Pushed:
    world = World(seed, seconds + 1)
    frames = [Frame(i / session.fps, world.frame(i / session.fps)) for i in range(int(seconds * session.fps))]
    for frame in frames:
        session.push(frame.image, frame.time)
    return Pushed(frames, session.chunk_frames)
