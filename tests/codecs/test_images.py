"""Pictures as files, and files from strangers as pictures."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from antiphon.codecs.images import (
    ImageError,
    ImageFormat,
    Limits,
    Picture,
    decode,
    decode_clip,
    encode,
    encode_gif,
    enlarge,
    fit,
    format_of,
    resize,
    sniff,
    thumbnail,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image


def scene(height: int = 48, width: int = 64) -> Picture:
    """A smooth picture with a hard-edged square in it."""
    y, x = np.mgrid[:height, :width]
    picture = np.stack([x * 255 // width, y * 255 // height, np.full_like(x, 90)], axis=-1).astype(np.uint8)
    picture[height // 4 : height // 2, width // 4 : width // 2] = (230, 40, 20)
    return picture


def pillow(format: str, image: Image.Image, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, format, **options)  # type: ignore[arg-type]
    return out.getvalue()


# ---- there and back -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("format", "error"), [("png", 0.0), ("jpeg", 4.0), ("webp", 4.0), ("gif", 12.0)])
def test_there_and_back(format: str, error: float) -> None:
    data = encode(scene(), format)
    decoded = decode(data)
    assert decoded.format is ImageFormat(format) is sniff(data)
    assert decoded.size == (64, 48)
    assert decoded.alpha is None
    assert np.abs(decoded.picture.astype(int) - scene()).mean() <= error


@pytest.mark.parametrize("format", ["jpeg", "webp"])
def test_compression_is_a_quality(format: str) -> None:
    sizes = [len(encode(scene(256, 256), format, compression=quality)) for quality in (0, 50, 90, 100)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1] / 2


def test_png_pays_no_heed_to_it() -> None:
    assert encode(scene(), "png", compression=3) == encode(scene(), "png")


@pytest.mark.parametrize("compression", [-1, 101])
def test_other_compressions_are_refused(compression: int) -> None:
    with pytest.raises(ImageError, match="between 0 and 100"):
        encode(scene(), "jpeg", compression=compression)


@pytest.mark.parametrize(
    "wrong", [np.zeros((2, 2), np.uint8), np.zeros((2, 2, 4), np.uint8), np.zeros((2, 2, 3), np.float32), np.zeros((0, 2, 3), np.uint8)]
)
def test_what_is_no_picture_is_not_written(wrong: Picture) -> None:
    with pytest.raises(ImageError, match=r"expected an array \[H, W, 3\]"):
        encode(wrong)


def test_names_of_formats() -> None:
    assert format_of("JPG") is format_of("image/jpeg") is ImageFormat.JPEG
    assert ImageFormat.WEBP.media_type == "image/webp"
    with pytest.raises(ImageError, match="'tiff' is no picture format here; there are png, jpeg, webp, gif"):
        format_of("tiff")


def test_a_moving_gif_there_and_back() -> None:
    clip = np.stack([np.roll(scene(), 4 * index, axis=1) for index in range(7)])
    frames, fps = decode_clip(encode_gif(clip, 8.0))
    assert frames.shape == clip.shape
    assert fps == pytest.approx(8.0, rel=0.02)
    assert np.abs(frames.astype(int) - clip).mean() < 12
    assert (decode(encode_gif(clip, 8.0)).picture == frames[0]).all()


def test_a_gif_rounds_times_without_drifting() -> None:
    clip = np.stack([np.full((4, 4, 3), 8 * index, np.uint8) for index in range(30)])
    _, fps = decode_clip(encode_gif(clip, 30.0))
    assert fps == pytest.approx(30.0)


# ---- what cameras and programs write --------------------------------------------------------------------------------


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_are_turned_as_the_camera_was_held(orientation: int) -> None:
    """A file of each orientation, made from an upright picture by the opposite turn."""
    upright = Image.fromarray(scene())
    methods = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    stored = upright.transpose(methods[orientation]) if orientation in methods else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    for format in ("PNG", "WEBP"):
        options = {"lossless": True} if format == "WEBP" else {}
        assert (decode(pillow(format, stored, exif=exif, **options)).picture == scene()).all()


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_a_damaged_note_of_the_camera_is_no_reason_to_refuse() -> None:
    data = pillow("JPEG", Image.fromarray(scene()), exif=b"Exif\x00\x00MM\x00*\xff\xff\xff\xff" + b"\xff" * 40)
    assert decode(data).size == (64, 48)


def test_transparency_is_blended_with_white_and_told() -> None:
    pixels = np.dstack([scene(), np.tile(np.arange(64, dtype=np.uint8) * 4, (48, 1))])
    decoded = decode(pillow("PNG", Image.fromarray(pixels)))
    assert decoded.alpha is not None
    assert (decoded.alpha == pixels[..., 3]).all()
    assert (decoded.picture[:, 0] == 255).all()
    share = pixels[..., 3:] / 255
    assert np.abs(decoded.picture - (scene() * share + 255 * (1 - share))).max() <= 1


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16", "CMYK"])
def test_every_kind_of_pixel_becomes_eight_bit_colour(mode: str) -> None:
    if mode == "I;16":
        image = Image.fromarray((scene()[..., 0].astype(np.uint16) << 8) | 77)
        expected = np.repeat(scene()[..., :1], 3, axis=2)
    else:
        image = Image.fromarray(scene()).convert(mode)
        expected = np.asarray(image.convert("RGB"))
    format = "JPEG" if mode == "CMYK" else "PNG"
    decoded = decode(pillow(format, image))
    assert decoded.picture.dtype == np.uint8
    assert np.abs(decoded.picture.astype(int) - expected).mean() <= (4 if mode == "CMYK" else 0)


# ---- what strangers send --------------------------------------------------------------------------------------------


def png_of(width: int, height: int, pixels: bytes = b"") -> bytes:
    """A PNG that claims to be so large."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", pixels or zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no bytes"),
        (b"hello", "no picture that can be read here; there are png"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "no picture that can be read"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "no picture that can be read"),
        (pillow("TIFF", Image.fromarray(scene())), "no picture that can be read"),
        (pillow("BMP", Image.fromarray(scene())), "no picture that can be read"),
        (b"\x89PNG\r\n\x1a\n", "cut short"),
        (b"\xff\xd8\xff\xe0", "JPEG"),
        (b"RIFF\x00\x00\x00\x00WEBP", "WEBP"),
        (b"GIF89a", "GIF"),
        (png_of(60_000, 60_000), "far too many pixels"),
        (png_of(20_000, 100), "a side may have 16384"),
        (png_of(8_000, 8_000), "8000x8000 = 64000000 pixels; 33554432 are allowed"),
        (png_of(1, 1 << 30), "a side may have|too many pixels"),
        (png_of(64, 64), "damaged or cut short"),
        (png_of(4000, 4000, zlib.compress(b"\0" * 1000)), "damaged or cut short"),
    ],
)
def test_what_is_no_picture_is_refused_with_a_reason(data: bytes, message: str) -> None:
    with pytest.raises(ImageError, match=message):
        decode(data)


def test_the_limits_can_be_chosen() -> None:
    data = encode(scene())
    for limits, message in [
        (Limits(bytes=100), "bytes; 100 are allowed"),
        (Limits(side=63), "64x48; a side may have 63"),
        (Limits(pixels=64 * 48 - 1), "= 3072 pixels; 3071 are allowed"),
    ]:
        with pytest.raises(ImageError, match=message):
            decode(data, limits)
    assert decode(data, Limits(bytes=len(data), side=64, pixels=64 * 48)).size == (64, 48)
    with pytest.raises(ImageError, match="7 frames of 64x48 pixels; 20000 are allowed"):
        decode_clip(encode_gif(np.stack([np.roll(scene(), index, axis=0) for index in range(7)]), 8.0), Limits(pixels=20_000))


def test_a_jpeg_of_endless_passes_is_refused() -> None:
    data = pillow("JPEG", Image.fromarray(scene()), progressive=True)
    at = data.rindex(b"\xff\xda")
    with pytest.raises(ImageError, match="more than 100 scans"):
        decode(data[:-2] + data[at:-2] * 200 + b"\xff\xd9")
    assert decode(data).size == (64, 48)


@pytest.mark.parametrize("format", list(ImageFormat))
def test_no_cut_file_is_taken_for_a_whole_one(format: ImageFormat) -> None:
    """A GIF may lose its end mark, and a JPEG its: all their pixels are there."""
    data = encode(scene(), format)
    whole = decode(data).picture
    for length in range(0, len(data), 7):
        try:
            decoded = decode(data[:length])
        except ImageError:
            continue
        assert length >= len(data) - 4
        assert (decoded.picture == whole).all()


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(list(ImageFormat)), st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=12))
def test_damage_gives_a_picture_or_an_image_error(format: ImageFormat, damage: list[tuple[int, int]]) -> None:
    data = bytearray(encode(scene(), format))
    for at, value in damage:
        data[at % len(data)] = value
    try:
        decoded = decode(bytes(data), Limits(pixels=1 << 20))
    except ImageError:
        return
    assert decoded.picture.shape == (decoded.size[1], decoded.size[0], 3)


# ---- sizes ----------------------------------------------------------------------------------------------------------


def test_whole_multiples_keep_pixels_crisp() -> None:
    large = resize(scene(), 128, 96)
    assert (large == enlarge(scene(), 2)).all()
    assert (large[1::2, 1::2] == scene()).all()
    assert set(map(tuple, large.reshape(-1, 3))) == set(map(tuple, scene().reshape(-1, 3)))
    assert enlarge(np.zeros((5, 4, 3, 3), np.uint8), 3).shape == (5, 12, 9, 3)


def test_other_sizes_are_filtered() -> None:
    small = resize(scene(), 32, 24)
    mean = scene().reshape(24, 2, 32, 2, 3).mean(axis=(1, 3))
    assert np.abs(small - mean).mean() < 3
    assert resize(scene(), 200, 31).shape == (31, 200, 3)
    assert resize(scene(), 64, 48) is not None


def test_thumbnails_keep_the_shape_and_never_grow() -> None:
    assert thumbnail(scene(300, 600), 320).shape == (160, 320, 3)
    assert thumbnail(scene(600, 300), 320).shape == (320, 160, 3)
    assert thumbnail(scene(), 320).shape == (48, 64, 3)
    assert fit(5000, 1, 100) == (100, 1)


@pytest.mark.parametrize("size", [(0, 5), (5, -1), (100_000, 5)])
def test_impossible_sizes_are_refused(size: tuple[int, int]) -> None:
    with pytest.raises(ImageError, match="cannot be made"):
        resize(scene(), *size)
