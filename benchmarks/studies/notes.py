"""Notes of 112 instruments in noise: recordings that come with Debian, played by FluidSynth.

    apt-get install fluidsynth timgm6mb-soundfont

Of every six instruments one is held out for validation and one for the test.
"""

from __future__ import annotations

import subprocess
import tempfile
import wave
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Part = Literal["train", "valid", "test"]

SOUNDS = Path("/usr/share/sounds/sf2/TimGM6mb.sf2")
# Of General MIDI's 128; the last two families, drums and sound effects, have no pitch.
INSTRUMENTS = 112
# Five octaves from the C two octaves below the middle one.
PITCHES = range(36, 96)
SAMPLE_RATE = 16_000
# Of a note; at the default tempo of MIDI files, half a second is one beat.
SECONDS = 0.5
# What the model sees: 64 milliseconds, several times a note.
WINDOW, WINDOWS = 1024, 6
# A frame below this share of the full scale is silence: the note has died away.
SILENCE = 1e-3
_NOISE_SEED = 2014
_HELD_OUT: dict[int, Part] = {2: "valid", 5: "test"}
_TICKS = 48


class Frames(NamedTuple):
    """Pieces of sound, and which of the notes from the lowest one is heard."""

    sounds: Tensor
    notes: Tensor


def part_of(instrument: int) -> Part:
    """Return which part an instrument belongs to.

    >>> [part_of(instrument) for instrument in (0, 2, 5, 8)]
    ['train', 'valid', 'test', 'valid']
    """
    return _HELD_OUT.get(instrument % 6, "train")


def midi_file() -> bytes:
    """Return a MIDI file in which every instrument plays every note, one after the other."""
    silence = _TICKS // 10
    events = bytearray()
    for program in range(INSTRUMENTS):
        events += bytes((0, 0xC0, program))
        for pitch in PITCHES:
            events += bytes((0, 0x90, pitch, 100))
            # All sound off, before the key is let go: no note reaches into the next one.
            events += bytes((_TICKS - silence, 0xB0, 120, 0))
            events += bytes((silence, 0x80, pitch, 0))
    events += bytes((0, 0xFF, 0x2F, 0))
    header = b"MThd" + (6).to_bytes(4, "big") + bytes((0, 0, 0, 1, 0, _TICKS))
    return header + b"MTrk" + len(events).to_bytes(4, "big") + bytes(events)


def play(midi: bytes) -> Tensor:
    """Return what FluidSynth plays, as one channel of 16-bit samples."""
    if not SOUNDS.exists():
        raise SystemExit(f"there is no {SOUNDS}: apt-get install timgm6mb-soundfont")
    with tempfile.TemporaryDirectory() as folder:
        score, sound = Path(folder, "notes.mid"), Path(folder, "notes.wav")
        score.write_bytes(midi)
        dry = ("-ni", "-q", "-R", "0", "-C", "0", "-g", "0.5", "-r", str(SAMPLE_RATE))
        command = ("fluidsynth", *dry, "-T", "wav", "-F", str(sound), str(SOUNDS), str(score))
        try:
            subprocess.run(command, check=True, capture_output=True)
        except FileNotFoundError:
            raise SystemExit("there is no fluidsynth: apt-get install fluidsynth") from None
        except subprocess.CalledProcessError as error:
            raise SystemExit(f"fluidsynth failed: {error.stderr.decode().strip()}") from None
        with wave.open(str(sound)) as file:
            samples = torch.frombuffer(
                bytearray(file.readframes(file.getnframes())), dtype=torch.int16
            )
            return samples.view(-1, file.getnchannels())[:, 0]


def cut(samples: Tensor) -> dict[Part, Frames]:
    """Cut what was played into frames, each with white noise as loud as the note in it.

    All have mean 0 and deviation 1; silent ones are left out.
    """
    length = round(SECONDS * SAMPLE_RATE)
    count = INSTRUMENTS * len(PITCHES)
    played = samples[: count * length].view(INSTRUMENTS, len(PITCHES), length)
    # From soon after the attack to where the note ends.
    starts = torch.linspace(0.05, 0.8, WINDOWS).mul(length).long()
    frames = torch.stack([played[..., start : start + WINDOW] for start in starts], dim=2).float()
    frames, deviations = _standardised(frames / 2**15)
    audible = deviations[..., 0] > SILENCE
    random = torch.Generator().manual_seed(_NOISE_SEED)
    frames, _ = _standardised(frames + torch.randn(frames.shape, generator=random))
    heard = torch.arange(len(PITCHES))[:, None].expand(-1, WINDOWS)
    parts: dict[Part, Frames] = {}
    for part in ("train", "valid", "test"):
        own = [number for number in range(INSTRUMENTS) if part_of(number) == part]
        kept = audible[own]
        parts[part] = Frames(frames[own][kept], heard.expand(len(own), -1, -1)[kept])
    return parts


def _standardised(frames: Tensor) -> tuple[Tensor, Tensor]:
    frames = frames - frames.mean(-1, keepdim=True)
    deviations = frames.std(-1, keepdim=True)
    return frames / deviations.clamp_min(SILENCE), deviations


@cache
def parts() -> dict[Part, Frames]:
    """Return the frames of each part."""
    return cut(play(midi_file()))
