"""Video in: files to frames, frames by time, frames to chunks. PyAV and numpy only."""

from longtake.video.chunker import Chunk, Chunker
from longtake.video.clock import Clock
from longtake.video.frame import Frame
from longtake.video.reader import VideoReader, read_video
from longtake.video.sampler import Sampler

__all__ = ["Chunk", "Chunker", "Clock", "Frame", "Sampler", "VideoReader", "read_video"]
