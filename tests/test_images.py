"""Sets of pictures are read as they are, hostile ones are named in a line, and nothing is run."""

import gzip
import os
import pickle
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.lib import format as npy
from PIL import Image

from expacc.data import images_process
from expacc.data.images import read_images
from expacc.data.images_kind import image_kind

RANDOM = np.random.default_rng(0)


def picture(high=12, wide=12, channels=3):
    shape = (high, wide, channels) if channels > 1 else (high, wide)
    return RANDOM.integers(0, 256, shape, np.uint8)


def save(path, pixels=None, **more):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture() if pixels is None else pixels).save(path, **more)


def png(width, height, chunks=()):
    """A PNG whose head says what it likes."""
    parts = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)), *chunks]
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in [*parts, (b"IEND", b"")]
    )
    return b"\x89PNG\r\n\x1a\n" + body


def hostile(folder):
    """Pictures that cannot be read, by name, and a word of what is said of each."""
    save(folder / "whole.jpg", picture(64, 64))
    whole = (folder / "whole.jpg").read_bytes()
    save(folder / "whole.png", picture(64, 64))
    contents = {
        "empty.png": (b"", "it is empty"),
        "cut.png": ((folder / "whole.png").read_bytes()[:2000], "truncated"),
        "cut.jpg": (whole[: len(whole) // 2], "truncated"),
        "head.jpg": (whole[:20], "it"),
        "bomb.png": (png(100_000, 100_000), "100,000 × 100,000 pixels, more than 100,000,000"),
        "text.png": (
            b"<!DOCTYPE html><p>404",
            "it is no picture, or damaged; it begins with b'<!DOCTYPE",
        ),
        "drawing.svg": (b"<?xml version='1.0'?><svg width='9'/>", "SVG is not read"),
        "phone.heic": (b"\0\0\0\x18ftypheic" + bytes(40), "HEIC and AVIF are not read"),
        "no_data.png": (png(8, 8), "it"),
        "zeros.gif": (bytes(500), "it is no picture"),
        "words.png": (
            png(8, 8, [(b"zTXt", b"a\0\0" + zlib.compress(bytes(80 << 20)))]),
            "it",
        ),
        "script.eps.jpg": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "no picture"),
    }
    for name, (data, _) in contents.items():
        (folder / name).write_bytes(data)
    for name in ("whole.jpg", "whole.png"):
        (folder / name).unlink()
    return {name: said for name, (_, said) in contents.items()}


def test_hostile_pictures_are_named_in_a_line_each(tmp_path, monkeypatch):
    monkeypatch.setattr("expacc.data.images._NAMED", 99)
    said = hostile(tmp_path / "photos" / "cats")
    for name in ("cats/ok.png", "dogs/1.png"):
        save(tmp_path / "photos" / name)
    found = read_images(tmp_path / "photos")
    assert found.files == ["cats/ok.png", "dogs/1.png"]
    assert found.classes == ("cats", "dogs")
    for name, words in said.items():
        (line,) = [note for note in found.notes if f"cats/{name}:" in note]
        assert words in line
        assert "\n" not in line
    monkeypatch.setattr("expacc.data.images._NAMED", 2)
    notes = read_images(tmp_path / "photos", workers=1).notes
    assert f"Left out {len(said) - 2} more pictures of the kind." in notes
    assert len(notes) == 3


def test_every_mode_becomes_eight_bits_of_red_green_and_blue(tmp_path):
    grey = np.arange(64, dtype=np.uint8).reshape(8, 8) * 3
    colour = np.stack([grey, grey // 2, 255 - grey], axis=-1)
    clear = np.dstack([colour, np.full((8, 8), 255, np.uint8)])
    clear[0, :, 3] = 0
    folder = tmp_path / "modes" / "a"
    save(folder / "grey.png", grey)
    save(folder / "rgb.png", colour)
    save(folder / "clear.png", clear)
    save(folder / "sixteen.png", grey.astype(np.uint16) * 257)
    save(folder / "twelve.tif", grey.astype(np.uint16) * 16)
    save(folder / "numbers.tif", (grey / 255).astype(np.float32))
    Image.fromarray(colour).convert("CMYK").save(folder / "cmyk.tif")
    Image.fromarray(colour).quantize(64).save(folder / "palette.png")
    Image.fromarray(grey).convert("1").save(folder / "one.png")
    frames = [Image.fromarray(grey).convert("P"), Image.fromarray(255 - grey).convert("P")]
    frames[0].save(folder / "moving.gif", save_all=True, append_images=frames[1:])
    save(folder / "dot.png", np.full((1, 1, 3), 200, np.uint8))
    save(folder / "long.webp", np.full((3, 50, 3), 7, np.uint8), lossless=True)
    save(folder / "is_png.jpg", colour, format="PNG")
    save(folder / "no_ending", colour, format="BMP")
    turned = Image.Exif()
    turned[274] = 6  # the camera lay on its side
    save(folder / "turned.png", np.rot90(colour), exif=turned)
    save(tmp_path / "modes" / "b" / "x.ppm", colour)
    found = read_images(tmp_path / "modes", size=8)
    of = {os.path.basename(name): one for name, one in zip(found.files, found.images, strict=True)}
    whole = torch.from_numpy(colour).permute(2, 0, 1)
    level = torch.from_numpy(grey).expand(3, 8, 8)
    for name in ("rgb.png", "is_png.jpg", "no_ending", "x.ppm", "turned.png", "cmyk.tif"):
        torch.testing.assert_close(of[name], whole, msg=name)
    for name in ("grey.png", "sixteen.png", "moving.gif", "numbers.tif"):
        torch.testing.assert_close(of[name], level, atol=1, rtol=0, msg=name)
    torch.testing.assert_close(of["twelve.tif"].float() / of["twelve.tif"].max(), level / 189)
    assert (of["clear.png"][:, 0] == 255).all()
    torch.testing.assert_close(of["clear.png"][:, 1:], whole[:, 1:])
    assert (of["palette.png"].float() - whole).abs().max() < 16
    assert set(of["one.png"].unique().tolist()) <= {0, 255}
    assert (of["dot.png"] == 200).all()
    assert (of["long.webp"] == 7).all()
    assert found.notes == (
        "1 of 16 pictures are not square and were squeezed.",
        "1 of 16 pictures are animated or have several pages: the first was taken.",
        "1 of 16 pictures have transparent places, which are white now.",
    )


def test_grey_pictures_have_one_channel(tmp_path):
    for name in "abc":
        save(tmp_path / "grey" / name / "1.png", picture(channels=1))
    assert read_images(tmp_path / "grey").images.shape == (3, 1, 32, 32)


def test_parts_nests_hidden_files_and_links(tmp_path):
    root, secret = tmp_path / "set", tmp_path / "secret"
    save(secret / "private.png")
    for name in (
        "train/cat/1.png",
        "train/cat/old/2.png",
        "train/dog/.hidden.png",
        "test/cat/3.png",
    ):
        save(root / name)
    save(root / "train" / "dog" / "4.jpg")
    (root / "train" / "ant").mkdir()
    for name in ("Thumbs.db", ".DS_Store", "notes.txt"):
        (root / "train" / "cat" / name).write_text("x")
    os.symlink(secret, root / "train" / "cat" / "linked")
    os.symlink(secret / "private.png", root / "train" / "cat" / "0.png")
    os.mkfifo(root / "train" / "cat" / "pipe.png")
    found = read_images(root)
    assert found.files == ["train/cat/1.png", "train/cat/old/2.png", "train/dog/4.jpg"]
    assert found.test.files == ["test/cat/3.png"]
    assert found.classes == ("cat", "dog")
    assert "train: the folder 'ant' holds no picture and is no class." in found.notes
    assert "2 links are not followed; copy what they lead to." in found.notes
    assert "1 files are no pictures of a class: notes.txt." in found.notes
    save(root / "test" / "cow" / "5.png")
    with pytest.raises(
        ValueError, match="set, test: every label must be a class of train; got 'cow'"
    ):
        read_images(root)


def test_a_decoder_that_dies_or_hangs_costs_one_picture(tmp_path, monkeypatch):
    """The process is another file for once: it dies of one name and waits at another."""
    own = tmp_path / "process.py"
    text = Path(images_process.__file__).read_text().replace("SECONDS = 20", "SECONDS = 1")
    stop = 'if "dies." in path: os.abort()\n    if "waits." in path: signal.pause()\n    try:'
    own.write_text(
        text.replace("    try:\n        pixels, said", f"    {stop}\n        pixels, said")
    )
    monkeypatch.setattr(images_process, "__file__", str(own))
    monkeypatch.setattr(images_process, "SECONDS", 1)
    for name in ("a/1.png", "a/dies.png", "a/2.png", "b/waits.png", "b/3.png"):
        save(tmp_path / "photos" / name)
    found = read_images(tmp_path / "photos", workers=1)
    assert found.files == ["a/1.png", "a/2.png", "b/3.png"]
    assert "Left out a/dies.png: the library that decodes it crashed." in found.notes
    assert "Left out b/waits.png: reading it takes longer than 1 s." in found.notes


def test_what_is_no_set_of_pictures_is_said(tmp_path):
    def kind(match):
        with pytest.raises(ValueError, match=match):
            read_images(tmp_path)

    kind("got an empty folder")
    (tmp_path / "cars.csv").write_text("a,b\n1,2\n")
    kind("there must be a set of pictures: .* got cars.csv")
    (tmp_path / "cars.csv").unlink()
    save(tmp_path / "1.png")
    kind("got 1 pictures without a folder, such as '1.png'")
    save(tmp_path / "cats" / "1.png")
    kind("two or more; got the folder 'cats' with pictures and 1 pictures without")
    with pytest.raises(ValueError, match="it is one picture"):
        read_images(tmp_path / "1.png")
    (tmp_path / "dogs").mkdir()
    (tmp_path / "dogs" / "1.png").write_bytes(b"")
    (tmp_path / "cats" / "1.png").write_bytes(b"")
    kind("none of 2 pictures can be read. .* it is empty")
    with pytest.raises(ValueError, match="size must be >= 8; got 4"):
        read_images(tmp_path, size=4)
    assert image_kind(tmp_path / "nothing") is None


def idx(array, zipped=False):
    head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    data = head + array.astype(np.uint8).tobytes()
    return gzip.compress(data) if zipped else data


def test_idx_files_are_known_by_their_content(tmp_path):
    images, labels = picture(20, 28 * 28, 1).reshape(20, 28, 28), np.arange(20) % 5
    files = {
        "first": idx(images[:12], True),  # gzip without the ending
        "second": idx(images[12:]),
        "what.gz": idx(labels[:12]),  # the ending without gzip
        "that": idx(labels[12:]),
        "readme.txt": b"hello",
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    found = read_images(tmp_path)
    assert (found.images[:, 0].numpy() == images[:12]).all()
    assert found.targets.tolist() == labels[:12].tolist()
    assert found.test.targets.tolist() == labels[12:].tolist()
    assert found.files[3] == "first[3]"
    (tmp_path / "that").write_bytes(idx(labels[12:])[:-1])
    with pytest.raises(ValueError, match="that: the file must hold 8 bytes behind its head"):
        read_images(tmp_path)
    (tmp_path / "that").unlink()
    with pytest.raises(ValueError, match="second: one idx file of 8 labels must lie beside"):
        read_images(tmp_path)
    (tmp_path / "first").write_bytes(gzip.compress(bytes([0, 0, 8, 3]) + b"\xff" * 12))
    with pytest.raises(ValueError, match="the file must hold 79,228,162,4"):
        read_images(tmp_path)
    (tmp_path / "first").write_bytes(idx(images, True)[:-30])
    with pytest.raises(ValueError, match="first: the gzip data end too early"):
        read_images(tmp_path)


@pytest.mark.parametrize(("classes", "width"), [(10, 1), (100, 2)])
def test_cifars_binary_version_and_the_refusal_of_its_pickle(tmp_path, classes, width):
    rows = RANDOM.integers(0, 256, (12, width + 3072), np.uint8)
    rows[:, :width] = 7
    rows[:6, width - 1] = classes - 1
    train, test = (
        ("data_batch_1.bin", "test_batch.bin") if width == 1 else ("train.bin", "test.bin")
    )
    (tmp_path / train).write_bytes(rows[:8].tobytes())
    (tmp_path / test).write_bytes(rows[8:].tobytes())
    names = "batches.meta.txt" if width == 1 else "fine_label_names.txt"
    (tmp_path / names).write_text("".join(f"thing {place}\n" for place in range(classes)) + "\n")
    found = read_images(tmp_path / train)
    assert found.targets.tolist() == [classes - 1] * 6 + [7] * 2
    assert found.classes[7] == "thing 7"
    assert (found.images.numpy() == rows[:8, width:].reshape(-1, 3, 32, 32)).all()
    assert len(found.test) == 4
    (tmp_path / train).write_bytes(rows[:8].tobytes()[:-1])
    with pytest.raises(ValueError, match=r"rows of 3,073 bytes .* or 3,074 .* Fetch them again"):
        read_images(tmp_path)
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps(1))
    for place in (tmp_path, tmp_path / "data_batch_1"):
        with pytest.raises(ValueError, match=r"a pickle, which can run code.* expacc get cifar10"):
            read_images(place)


class Evil:
    def __reduce__(self):
        return os.abort, ()


def test_npz_in_its_many_forms(tmp_path):
    path = tmp_path / "set.npz"
    images = picture(10, 9 * 11 * 3, 1).reshape(10, 9, 11, 3)
    first = torch.from_numpy(images).permute(0, 3, 1, 2)

    def read(**arrays):
        np.savez_compressed(path, **arrays)
        return read_images(path)

    labels = np.arange(10) % 2
    for x in (images, images.transpose(0, 3, 1, 2), np.asfortranarray(images), images / 255.0):
        torch.testing.assert_close(read(x=x, y=labels).images, first)
    assert read(images=images[..., 0], labels=labels[:, None]).images.shape == (10, 1, 9, 11)
    found = read(train_images=images, train_labels=np.eye(2)[labels], val_images=images[:3])
    assert (found.targets.tolist(), found.test) == (labels.tolist(), None)
    found = read(x_train=images, y_train=labels, x_test=images[:4], y_test=labels[:4])
    assert len(found.test) == 4
    assert read(X=images, y=np.array(["b", "a"])[labels]).classes == ("a", "b")
    assert read(x=images, y=labels, classes=np.array(["no", "yes"])).classes == ("no", "yes")
    assert read(x=np.tile(images, (1, 10, 10, 1)), y=labels).images.shape == (10, 3, 32, 32)
    for arrays, words in (
        ({"x": images, "y": labels[:9]}, "as many labels as pictures; got 9 and 10"),
        ({"x": images - 0.5, "y": labels}, "pixels must be from 0 to 255, or from 0 to 1; got"),
        ({"x": images * np.nan, "y": labels}, "pixels must be from 0 to 255"),
        ({"x": images[0], "y": labels}, r"as many labels as pictures"),
        ({"x": images[..., :2], "y": labels}, r"1 or 3 channels; got \(10, 9, 11, 2\)"),
        ({"x": images, "y": labels * 0}, "two classes or more; got '0' alone"),
        ({"x": images, "y": labels / 3}, "labels must be whole numbers or texts"),
        ({"a": images}, "it holds: a"),
        ({"x": images, "y": np.array([Evil()] * 10)}, "holds Python objects, which are pickled"),
    ):
        with pytest.raises(ValueError, match=words):
            read(**arrays)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ValueError, match=r"set\.npz: it must be an npz file, undamaged"):
        read_images(path)


def test_what_unpacks_to_more_than_its_size_allows_is_refused(tmp_path):
    head = bytes([0, 0, 8, 3]) + struct.pack(">3I", 90_000, 28, 28)
    (tmp_path / "images").write_bytes(gzip.compress(head + bytes(90_000 * 784), 1))
    with pytest.raises(ValueError, match="images: it unpacks to more than 67,108,864 bytes"):
        read_images(tmp_path)
    np.savez_compressed(tmp_path / "set.npz", x=np.zeros((90_000, 28, 28), np.uint8), y=[0, 1])
    with pytest.raises(ValueError, match=r"set\.npz: it unpacks to more than"):
        read_images(tmp_path / "set.npz")


def test_an_npz_that_lies_about_its_shape(tmp_path):
    claimed = {"descr": "|u1", "fortran_order": False, "shape": (1 << 40, 32, 32)}
    with zipfile.ZipFile(tmp_path / "lie.npz", "w") as archive, archive.open("x.npy", "w") as one:
        npy.write_array_header_1_0(one, claimed)
    with pytest.raises(ValueError, match=r"undamaged \(x.npy: \(1099511627776, 32, 32\) with 0 by"):
        read_images(tmp_path / "lie.npz")


def test_svhn(tmp_path):
    from scipy.io import savemat

    images = picture(32, 32 * 3 * 6, 1).reshape(32, 32, 3, 6)
    labels = np.array([[1], [10], [2], [10], [3], [1]])
    for part in ("train", "test"):
        savemat(tmp_path / f"{part}_32x32.mat", {"X": images, "y": labels})
    found = read_images(tmp_path)
    assert found.targets.tolist() == [1, 0, 2, 0, 3, 1]
    assert found.classes == ("0", "1", "2", "3")
    assert (found.images[4].numpy() == images[..., 4].transpose(2, 0, 1)).all()
    assert len(found.test) == 6
    savemat(tmp_path / "test_32x32.mat", {"X": images[0], "y": labels})
    with pytest.raises(
        ValueError, match=r"it must hold X \(H, W, C, N\) and y; got X \(32, 3, 6\)"
    ):
        read_images(tmp_path)
    (tmp_path / "test_32x32.mat").write_bytes(b"MATLAB 5.0 MAT-file" + bytes(200))
    with pytest.raises(ValueError, match=r"it must be a \.mat file, undamaged"):
        read_images(tmp_path)
