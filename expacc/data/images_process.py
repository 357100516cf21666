"""Pictures of strangers by Pillow, in a process with a limit on memory and on time for each.

A small file can ask for any amount of memory, or crash the libraries that decode it. This file is
run by its path: in goes a line of JSON, then lists of paths, a line each; out comes for every path
a line of JSON and, if it was read, the pixels: size × size × 3 bytes.
"""

import io
import json
import os
import signal
import stat
import sys
from contextlib import suppress
from typing import IO, Any

SECONDS = 20  # for one picture
MEMORY = 1536 << 20  # beside what the libraries take
MOST_PIXELS = 100_000_000
MOST_BYTES = 256 << 20  # of one file
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP", "PPM", "TIFF")

_OTHERS = (b"heic", b"heix", b"hevc", b"mif1", b"msf1", b"avif", b"avis")
_TURNS = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}  # EXIF → Image.Transpose


class Refused(Exception):
    """Says why in words for the other side."""


def read_bytes(path: str) -> bytes:
    """The bytes of a plain file that is not reached through a link."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0))
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise Refused("it is no plain file")
        if found.st_size > MOST_BYTES:
            raise Refused(f"it has more than {MOST_BYTES:,} bytes")
        return file.read(MOST_BYTES)


def decode(data: bytes, size: int) -> tuple[bytes, list[str]]:
    """A picture squeezed to a square of ``size``, red, green and blue; and what is to be said.

    Args:
        data: a file.
        size: pixels of a side.

    Returns:
        The pixels row by row, and any of 'grey', 'animated', 'clear' (it had transparent places,
        white now) and 'oblong' (it was not square).

    Raises:
        Refused: it is no picture of a known format, too large, …; libraries raise what they will.
    """
    from PIL import Image, UnidentifiedImageError

    Image.MAX_IMAGE_PIXELS = None  # which would warn first; counted below
    _refuse_others(data)
    try:
        picture: Any = Image.open(io.BytesIO(data), formats=FORMATS)
    except UnidentifiedImageError:
        raise Refused(f"it is no picture, or damaged; it begins with {data[:12]!r}") from None
    width, height = picture.size
    if width * height > MOST_PIXELS:
        raise Refused(f"{width:,} × {height:,} pixels, more than {MOST_PIXELS:,} in all")
    said = ["oblong"] if width != height else []
    if picture.format != "MPO" and getattr(picture, "is_animated", False):  # MPO: one and previews
        said.append("animated")
        picture.seek(0)
    if picture.format in ("JPEG", "MPO"):  # decoded at an eighth, a quarter, a half
        picture.draft(None, (2 * size, 2 * size))
    picture.load()
    turn = None
    with suppress(Exception):  # EXIF is as damaged as anything
        turn = _TURNS.get(picture.getexif().get(274))
    square = _resized(Image, _eight_bits(Image, picture), size)
    if turn is not None:
        square = square.transpose(Image.Transpose(turn))
    if square.mode == "RGBA":
        if square.getextrema()[3][0] < 255:
            said.append("clear")
        ground = Image.new("RGBA", square.size, (255, 255, 255, 255))
        square = Image.alpha_composite(ground, square)
    square = square.convert("RGB")
    pixels = square.tobytes()
    if pixels[::3] == pixels[1::3] == pixels[2::3]:
        said.append("grey")
    return pixels, said


def _refuse_others(data: bytes) -> None:
    if not data:
        raise Refused("it is empty")
    if data[4:8] == b"ftyp" and data[8:12] in _OTHERS:
        raise Refused("HEIC and AVIF are not read; save it as JPEG or PNG")
    if b"<svg" in data[:1024].lower():
        raise Refused("SVG is not read; save it as PNG")


def _eight_bits(image: Any, picture: Any) -> Any:
    """With channels of eight bits; a palette becomes colours, one of 16 bits its upper ones."""
    if picture.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in picture.info:
        return picture.convert("RGBA")
    if picture.mode in ("1", "P"):
        return picture.convert("RGB")
    if not picture.mode.startswith(("I", "F")):
        return picture  # L, RGB, CMYK, YCbCr …
    import numpy as np

    values = np.asarray(picture)
    low, high = values.min(), values.max()
    if picture.mode == "F":
        if not 0 <= low <= high <= 255:
            raise Refused(f"pixels from {low:.4g} to {high:.4g}; 0 to 1 or 0 to 255 are read")
        return image.fromarray((values * (255 if high <= 1 else 1) + 0.5).astype(np.uint8))
    if low < 0 or high > 65535:
        raise Refused(f"pixels from {low} to {high}; 8 and 16 bits are read")
    shift = max(0, int(high).bit_length() - 8)  # cameras and scanners use 10, 12 or 16 bits
    return image.fromarray((values >> shift).astype(np.uint8))


def _resized(image: Any, picture: Any, size: int) -> Any:
    if picture.size == (size, size):
        return picture
    return picture.resize((size, size), image.Resampling.BILINEAR, reducing_gap=2.0)


def _answer(path: str, size: int) -> tuple[dict[str, Any], bytes]:
    try:
        pixels, said = decode(read_bytes(path), size)
        return {"said": said}, pixels
    except Refused as error:
        return {"error": str(error)}, b""
    except MemoryError:
        return {"error": f"reading it takes more than {MEMORY >> 20:,} MiB of memory"}, b""
    except OSError as error:
        return {"error": f"it cannot be read ({_first_line(error.strerror or error)})"}, b""
    except Exception as error:  # libraries raise what their parts raise
        return {"error": f"it is damaged ({_first_line(error)})"}, b""


def _first_line(error: object) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0][:120].rstrip(".")


def _alarm(seconds: int) -> None:
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _main(back: IO[bytes]) -> None:
    asked = json.loads(sys.stdin.buffer.readline())
    sys.path[:] = asked["path"]
    from PIL import Image

    from expacc.data.container_process import limit

    Image.preinit()
    limit(MEMORY, 7 * 24 * 3600)
    back.write(b"ready\n")
    back.flush()
    for line in sys.stdin.buffer:
        for path in json.loads(line):
            _alarm(SECONDS)  # nothing catches it: it ends the process
            head, pixels = _answer(path, asked["size"])
            _alarm(0)
            back.write(json.dumps(head).encode() + b"\n" + pixels)
            back.flush()


if __name__ == "__main__":
    _main(sys.stdout.buffer)
