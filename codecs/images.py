"""Pictures: PNG, WebP, JPEG and animated GIF from and to arrays, resizing, thumbnails.

A picture is `[H, W, 3] uint8` sRGB, a clip `[T, H, W, 3]`. Decoding is made for files from strangers: bytes, sides and pixels are bounded
before anything is unpacked, only the listed formats are looked at, and every fault is an `ImageError` with a sentence. Needs Pillow.
"""

from __future__ import annotations

import enum
import io
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Picture: TypeAlias = npt.NDArray[np.uint8]
"""`[H, W, 3]`, sRGB."""
Clip: TypeAlias = npt.NDArray[np.uint8]
"""`[T, H, W, 3]`, sRGB."""
Mask: TypeAlias = npt.NDArray[np.uint8]
"""`[H, W]`, 0 to 255."""

MAX_BYTES = 32 << 20
MAX_PIXELS = 32 << 20
"""About the pixels of a 24-megapixel camera, with room."""
MAX_SIDE = 16_384
_MAX_SCANS = 100
"""A progressive JPEG has about ten."""


class ImageError(ValueError):
    """The picture cannot be read or written; the message says why."""


class ImageFormat(enum.StrEnum):
    """What can be read and written (a GIF is read as its first frame)."""

    PNG = "png"
    JPEG = "jpeg"
    WEBP = "webp"
    GIF = "gif"

    @property
    def media_type(self) -> str:
        return f"image/{self.value}"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a file may have at most; `side` and `pixels` are of the picture as stored."""

    bytes: int = MAX_BYTES
    pixels: int = MAX_PIXELS
    side: int = MAX_SIDE


@dataclass(frozen=True, slots=True)
class Decoded:
    """A picture that was read, turned as its camera was held. `alpha` is what the file says of transparency, None when it says nothing;
    the transparent parts of `picture` are blended with white. Colour profiles are not applied."""

    picture: Picture
    alpha: Mask | None
    format: ImageFormat

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) in pixels."""
        return self.picture.shape[1], self.picture.shape[0]


# ---- writing --------------------------------------------------------------------------------------------------------


def encode(picture: Picture, format: ImageFormat | str = ImageFormat.PNG, *, compression: int | None = None) -> bytes:
    """A picture as a file.

    `compression` is OpenAI's `output_compression`: for JPEG and WebP the quality, 0 to 100 (100 is the best; by default 90). PNG, which
    loses nothing, and GIF, which has 256 colours, pay no heed to it. Raises `ImageError`.
    """
    wanted = format_of(format)
    if compression is not None and not 0 <= compression <= 100:
        raise ImageError(f"the compression must lie between 0 and 100, not {compression}")
    image = _image(_checked(picture, 3))
    out = io.BytesIO()
    match wanted:
        case ImageFormat.PNG:
            image.save(out, "PNG", compress_level=6)
        case ImageFormat.JPEG:
            # Above 90 colours are kept at full resolution: people ask for that quality because they look closely.
            quality = 90 if compression is None else compression
            image.save(out, "JPEG", quality=quality, subsampling=0 if quality > 90 else 2)
        case ImageFormat.WEBP:
            image.save(out, "WEBP", quality=90 if compression is None else compression, method=4)
        case ImageFormat.GIF:
            image.save(out, "GIF")
    return out.getvalue()


def encode_gif(clip: Clip, fps: float, *, loop: bool = True) -> bytes:
    """A clip as an animated GIF. GIF counts in hundredths of a second, so above 50 frames a second it plays slower. Raises `ImageError`."""
    frames = [_image(frame) for frame in _checked(clip, 4)]
    if not 0 < fps <= 1000:
        raise ImageError(f"a clip needs a rate between 0 and 1000 frames a second, not {fps}")
    # The ends of the frames are rounded, not their lengths: so a rounding error never adds up.
    ends = [max(2 * index, round(100 * index / fps)) for index in range(1, len(frames) + 1)]
    durations = [10 * (end - start) for start, end in zip([0, *ends], ends, strict=False)]
    out = io.BytesIO()
    frames[0].save(
        out,
        "GIF",
        save_all=True,
        append_images=frames[1:],
        duration=durations,
        disposal=1,
        optimize=False,
        **({"loop": 0} if loop else {}),
    )
    return out.getvalue()


def format_of(name: ImageFormat | str) -> ImageFormat:
    """The format of that name ("jpg" too), or of that media type. Raises `ImageError`."""
    wanted = name.lower().removeprefix("image/")
    try:
        return ImageFormat({"jpg": "jpeg"}.get(wanted, wanted))
    except ValueError:
        raise ImageError(f"{name!r} is no picture format here; there are {', '.join(ImageFormat)}") from None


# ---- reading --------------------------------------------------------------------------------------------------------


def decode(data: bytes, limits: Limits = Limits()) -> Decoded:
    """Read a PNG, JPEG, WebP or GIF file from anywhere; of a moving one, the first frame. Raises `ImageError` for everything that is not a
    whole picture within the limits."""
    with _opened(data, limits) as (opened, found):
        opened.load()
        image = _upright(opened)
        _check_size(image.width, image.height, limits)
        if not _has_alpha(image):
            return Decoded(np.asarray(_rgb(image)), None, found)
        full = image.convert("RGBA")
        return Decoded(_on_white(full), np.asarray(full.getchannel("A")), found)


def decode_clip(data: bytes, limits: Limits = Limits()) -> tuple[Clip, float]:
    """Read a moving GIF, WebP or PNG: its frames and how many a second there are on average. `limits.pixels` holds for all frames together.
    Raises `ImageError`."""
    with _opened(data, limits) as (opened, _):
        count = getattr(opened, "n_frames", 1)
        width, height = opened.size
        if count * width * height > limits.pixels:
            raise ImageError(f"the clip has {count} frames of {width}x{height} pixels; {limits.pixels} are allowed in all")
        frames, lasts = [], 0.0
        for number in range(count):
            opened.seek(number)
            opened.load()
            frames.append(_on_white(opened.convert("RGBA")) if _has_alpha(opened) else np.asarray(_rgb(opened)))
            lasts += float(opened.info.get("duration") or 100.0)
        return np.stack(frames), 1000.0 * count / lasts


@contextmanager
def _opened(data: bytes, limits: Limits) -> Iterator[tuple[Any, ImageFormat]]:
    """The file as Pillow has it, its head read and checked; what goes wrong with it, as an `ImageError`."""
    from PIL import Image

    found = _checked_format(data, limits)
    with _as_image_error(found), Image.open(io.BytesIO(data), formats=[found.value.upper()]) as opened:
        _check_size(opened.width, opened.height, limits)
        yield opened, found


def _checked_format(data: bytes, limits: Limits) -> ImageFormat:
    if not data:
        raise ImageError("the picture is empty: no bytes")
    if len(data) > limits.bytes:
        raise ImageError(f"the picture has {len(data)} bytes; {limits.bytes} are allowed")
    found = sniff(data)
    if found is None:
        raise ImageError(f"the data is no picture that can be read here; there are {', '.join(ImageFormat)}")
    if found is ImageFormat.PNG:
        _check_png(data)
    if found is ImageFormat.JPEG and data.count(b"\xff\xda") > _MAX_SCANS:
        raise ImageError(f"the JPEG has more than {_MAX_SCANS} scans: each is a pass over the whole picture")
    return found


def sniff(data: bytes) -> ImageFormat | None:
    """The format by the file's first bytes, which is what decides; names and media types are only claims."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return ImageFormat.PNG
    if data.startswith(b"\xff\xd8\xff"):
        return ImageFormat.JPEG
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return ImageFormat.WEBP
    if data[:6] in (b"GIF87a", b"GIF89a"):
        return ImageFormat.GIF
    return None


def _check_size(width: int, height: int, limits: Limits) -> None:
    if max(width, height) > limits.side:
        raise ImageError(f"the picture is {width}x{height}; a side may have {limits.side} pixels")
    if width * height > limits.pixels:
        raise ImageError(f"the picture is {width}x{height} = {width * height} pixels; {limits.pixels} are allowed")
    if width < 1 or height < 1:
        raise ImageError(f"the picture is {width}x{height}: it has no pixels")


def _check_png(data: bytes) -> None:
    """A PNG's chunks are whole and come to an end. Pillow takes some truncated files for complete, and unpacks long texts."""
    at = 8
    while at + 12 <= len(data):
        size, name = struct.unpack_from(">I4s", data, at)
        end = at + 12 + size
        if end > len(data):
            break
        if (
            name in (b"IHDR", b"PLTE", b"IDAT", b"IEND")
            and zlib.crc32(data[at + 4 : end - 4]) != struct.unpack_from(">I", data, end - 4)[0]
        ):
            raise ImageError(f"the PNG is damaged: the checksum of its {name.decode()} is wrong")
        if name == b"IEND":
            return
        at = end
    raise ImageError("the PNG is cut short: it has no end")


# Pillow's readers are written for friends: a damaged file can make them stumble in all these ways.
_STUMBLES = (OSError, SyntaxError, ValueError, TypeError, IndexError, KeyError, EOFError, OverflowError, struct.error, zlib.error)


@contextmanager
def _as_image_error(found: ImageFormat) -> Iterator[None]:
    """Whatever Pillow raises about a file, as an `ImageError`."""
    from PIL import Image, UnidentifiedImageError

    try:
        yield
    except ImageError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ImageError("the picture has far too many pixels") from None
    except UnidentifiedImageError:
        raise ImageError(f"the data begins like a {found.value.upper()} but is none") from None
    except _STUMBLES as error:
        detail = str(error) or type(error).__name__
        raise ImageError(f"the {found.value.upper()} is damaged or cut short: {detail}") from None


def _upright(image: Any) -> Any:
    """The picture turned as its camera was held; as it is when that note is not readable, which is no reason to refuse the picture."""
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(image)
    except _STUMBLES:
        return image


def _has_alpha(image: Any) -> bool:
    return image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info


def _on_white(full: Any) -> Picture:
    from PIL import Image

    white = Image.new("RGBA", full.size, (255, 255, 255, 255))
    return np.asarray(Image.alpha_composite(white, full).convert("RGB"))


def _rgb(image: Any) -> Any:
    """8 bits a colour, whatever the file's depth and palette."""
    if image.mode.startswith("I"):  # 16 bits of grey
        wide = np.asarray(image).astype(np.int64)
        return _image(np.repeat((wide.clip(0, 65535) >> 8).astype(np.uint8)[..., None], 3, axis=2))
    return image.convert("RGB")


# ---- sizes ----------------------------------------------------------------------------------------------------------


def resize(picture: Picture, width: int, height: int) -> Picture:
    """The picture in another size.

    Whole multiples of its own size repeat its pixels, so that pixel art stays crisp; everything else goes through a Lanczos filter.
    """
    height_now, width_now, _ = _checked(picture, 3).shape
    if width < 1 or height < 1 or max(width, height) > MAX_SIDE:
        raise ImageError(f"a picture cannot be made {width}x{height}: sides lie between 1 and {MAX_SIDE}")
    if (width, height) == (width_now, height_now):
        return picture
    if width % width_now == 0 and height % height_now == 0 and width // width_now == height // height_now:
        return enlarge(picture, width // width_now)
    from PIL import Image

    return np.asarray(_image(picture).resize((width, height), Image.Resampling.LANCZOS))


def enlarge(frames: npt.NDArray[np.uint8], factor: int) -> npt.NDArray[np.uint8]:
    """A picture or clip with each pixel repeated `factor` times both ways."""
    if factor < 1:
        raise ImageError(f"a picture is enlarged by a whole number from 1 on, not {factor}")
    return frames if factor == 1 else frames.repeat(factor, axis=-3).repeat(factor, axis=-2)


def fit(width: int, height: int, longest: int) -> tuple[int, int]:
    """(width, height) of the same shape whose longer side is at most `longest`, at least one pixel each; never larger."""
    scale = min(1.0, longest / max(width, height))
    return max(1, round(width * scale)), max(1, round(height * scale))


def thumbnail(picture: Picture, longest: int = 320) -> Picture:
    """The picture with its longer side at most `longest` pixels; a smaller one stays as it is."""
    height, width, _ = _checked(picture, 3).shape
    return resize(picture, *fit(width, height, longest))


# ---- arrays and Pillow ----------------------------------------------------------------------------------------------


def _checked(frames: npt.NDArray[np.uint8], dimensions: int) -> npt.NDArray[np.uint8]:
    shape = "[H, W, 3]" if dimensions == 3 else "[T, H, W, 3]"
    if frames.ndim != dimensions or frames.shape[-1] != 3 or frames.dtype != np.uint8 or not frames.size:
        raise ImageError(f"expected an array {shape} of uint8 with something in it, not {list(frames.shape)} of {frames.dtype}")
    return frames


def _image(picture: Picture) -> Any:
    from PIL import Image

    return Image.fromarray(np.ascontiguousarray(picture))
