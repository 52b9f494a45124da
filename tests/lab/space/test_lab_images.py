"""Images: real digits, folders of all kinds, and patches that are where they should be."""

import numpy as np
import pytest
import torch
from PIL import Image

from milepost.lab.space import images, views
from milepost.lab.space.images import read


def save(path, pixels, mode=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(pixels, dtype=np.uint8), mode).save(path)
    return path


def fill(folder, *, classes=("cat", "dog"), many=12, size=(6, 10), seed=0):
    """A folder of grey noise."""
    rng = np.random.default_rng(seed)
    for name in classes:
        for number in range(many):
            save(folder / name / f"{number:02}.png", rng.integers(0, 256, size))
    return folder


@pytest.fixture
def folder(tmp_path):
    return fill(tmp_path / "pets")


# -- digits
# -------------------------------------------------------------------------------------------------------------------


def test_the_digits_are_real_and_split_once_and_for_all():
    data = read()
    assert data.size == (8, 8) and data.channels == 1 and data.classes == tuple("0123456789")
    assert len(data.train) + len(data.test) == 1797 and 0.2 < len(data.test) / 1797 < 0.3
    assert data.train.dtype == np.float32 and data.train.min() == 0 and data.train.max() == 1
    assert set(data.train_labels) == set(data.test_labels) == set(range(10))
    again = read()
    assert again.digest == data.digest and np.array_equal(again.test, data.test)
    assert not {one.tobytes() for one in data.train} & {one.tobytes() for one in data.test}


def test_without_scikit_learn_there_is_a_sentence(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sklearn.datasets", None)
    with pytest.raises(ValueError, match=r"pip install 'milepost\[images\]', or give --images FOLDER"):
        read()


# -- folders
# ------------------------------------------------------------------------------------------------------------------


def test_a_folder_has_a_class_for_each_sub_folder(folder):
    data = read(folder)
    assert (
        data.classes == ("cat", "dog")
        and data.size == (6, 10)
        and data.channels == 1
        and len(data.train) + len(data.test) == 24
    )
    about = data.describe()
    assert about["source"] == "pets" and about["size"] == [6, 10] and about["train_images"] == len(data.train)


def test_pixels_are_those_of_the_file_and_rows_are_rows(folder):
    ramp = np.arange(60, dtype=np.uint8).reshape(6, 10)
    save(folder / "cat" / "00.png", ramp)
    data = read(folder)
    every = np.concatenate([data.train, data.test])
    assert any(np.array_equal(one[0], ramp.astype(np.float32) / 255) for one in every)


def test_copies_of_an_image_are_on_one_side(folder):
    for number in range(20):
        home = folder / ("cat" if number % 2 else "dog")
        (home / f"copy-{number}.png").write_bytes((folder / "cat" / "00.png").read_bytes())
    data = read(folder)
    sides = [{one.tobytes() for one in side} for side in (data.train, data.test)]
    assert not sides[0] & sides[1]


def test_other_pixels_and_other_classes_are_other_data(folder, tmp_path):
    first = read(folder).digest
    assert read(fill(tmp_path / "again" / "pets")).digest == first
    assert read(fill(tmp_path / "named", classes=("cat", "dogs"))).digest != first
    save(folder / "cat" / "00.png", np.zeros((6, 10)))
    assert read(folder).digest != first


def test_grey_and_coloured_images_are_read_together(folder):
    save(folder / "dog" / "red.png", np.stack([np.full((6, 10), 255), np.zeros((6, 10)), np.zeros((6, 10))], axis=-1))
    data = read(folder)
    every = np.concatenate([data.train, data.test])
    assert data.channels == 3 and any((one[0] == 1).all() and (one[1:] == 0).all() for one in every)
    assert sum(np.array_equal(one[0], one[2]) for one in every) == 24  # grey ones are grey


def test_an_opaque_alpha_channel_is_nothing(folder):
    save(folder / "dog" / "rgba.png", np.full((6, 10, 4), 255))
    assert read(folder).channels == 3


def test_hidden_files_are_not_images(folder):
    (folder / "cat" / ".DS_Store").write_bytes(b"no image")
    (folder / ".cache").mkdir()
    assert read(folder).classes == ("cat", "dog")


def spoil_mixed(folder):
    save(folder / "dog" / "wide.png", np.zeros((6, 12)))


def spoil_broken(folder):
    whole = (folder / "dog" / "03.png").read_bytes()
    (folder / "dog" / "03.png").write_bytes(whole[: len(whole) // 2])


def spoil_animated(folder):
    frames = [Image.fromarray(np.full((6, 10), shade, dtype=np.uint8)) for shade in (0, 200)]
    frames[0].save(folder / "dog" / "moving.gif", save_all=True, append_images=frames[1:])


def spoil_deep(folder):
    Image.fromarray(np.zeros((6, 10), dtype=np.int32)).save(folder / "dog" / "deep.tif")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            spoil_mixed,
            r"one size, height x width: cat/00\.png is 6 x 10 and dog/wide\.png is 6 x 12; resize or crop them",
        ),
        (spoil_broken, r"dog/03\.png can't be read as an image"),
        (spoil_animated, r"moving\.gif holds 2 frames, and an image is one"),
        (spoil_deep, r"deep\.tif has pixels of mode I.*8 bits a channel"),
        (
            lambda folder: save(folder / "dog" / "half.png", np.full((6, 10, 4), 128)),
            r"half\.png is transparent in places",
        ),
        (lambda folder: (folder / "dog" / "list.txt").write_text("cats"), r"list\.txt is no image"),
        (lambda folder: (folder / "dog" / "fake.png").write_text("cats"), r"fake\.png can't be read as an image"),
        (lambda folder: (folder / "cow").mkdir(), "class cow has 0 different images, and at least 2 are needed"),
    ],
    ids=["mixed sizes", "broken", "animated", "deep", "transparent", "a text", "no image", "empty class"],
)
def test_what_is_wrong_with_a_folder_is_said_by_file(folder, spoil, said):
    spoil(folder)
    with pytest.raises(ValueError, match=said):
        read(folder)


def test_a_folder_without_classes_or_images_is_said(tmp_path):
    with pytest.raises(ValueError, match="there is no folder"):
        read(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="has 0 sub-folders, and at least two are needed"):
        read(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with pytest.raises(ValueError, match="hold no images"):
        read(tmp_path)


def test_of_every_class_a_quarter_is_for_testing(folder):
    data = read(folder)
    assert [int((data.test_labels == number).sum()) for number in (0, 1)] == [3, 3]


def test_a_class_of_one_image_is_said(folder):
    for file in list((folder / "dog").iterdir())[1:]:
        file.unlink()
    (folder / "dog" / "copy.png").write_bytes(next((folder / "dog").iterdir()).read_bytes())
    with pytest.raises(ValueError, match="class dog has 1 different images, and at least 2 are needed"):
        read(folder)


def test_more_than_memory_should_hold_is_said(folder, monkeypatch):
    monkeypatch.setattr(images, "MOST", 1000)
    with pytest.raises(ValueError, match=r"24 images of 6 x 10, which take .* GB, and at most 0 GB are held"):
        read(folder)


# -- views
# --------------------------------------------------------------------------------------------------------------------


def test_patches_are_cut_row_by_row():
    """Against loops, on an image that is not square: swapped axes would show."""
    rng = np.random.default_rng(0)
    image = rng.standard_normal((2, 3, 4, 6)).astype(np.float32)
    found = views.cut(torch.from_numpy(image), 2).numpy()
    assert found.shape == (2, 6, 12)
    for b in range(2):
        for r in range(2):
            for c in range(3):
                want = [image[b, k, 2 * r + i, 2 * c + j] for k in range(3) for i in range(2) for j in range(2)]
                assert found[b, 3 * r + c].tolist() == want
    with pytest.raises(ValueError, match="4 x 6 pixels can't be cut into patches of 4 x 4"):
        views.cut(torch.from_numpy(image), 4)


def test_another_size_is_the_same_image():
    across = np.linspace(0, 1, 16, dtype=np.float32)
    image = np.broadcast_to(across, (1, 1, 8, 16)).copy()
    assert torch.equal(views.sized(image, (8, 16)), torch.from_numpy(image))
    for size in ((4, 8), (12, 24), (16, 32)):
        done = views.sized(image, size)
        assert (
            tuple(done.shape[2:]) == size and float((done - done[:, :, :1]).abs().max()) < 1e-6
        )  # brightness goes across, not down
        middles = (np.arange(size[1]) + 0.5) / size[1] * 16 - 0.5
        inner = slice(size[1] // 4, -size[1] // 4)
        assert np.abs(done[0, 0, 0].numpy() - np.interp(middles, np.arange(16), across))[inner].max() < 1e-3


def test_no_pixel_is_passed_over_where_an_image_shrinks():
    image = np.zeros((1, 1, 8, 8), dtype=np.float32)
    image[..., 0, 0] = 1
    shrunk = views.sized(image, (2, 2))[0, 0]
    assert float(shrunk[0, 0]) > 0.03 and float(shrunk[0, 0]) == float(
        shrunk.max()
    )  # points 4 pixels apart would not see it


def test_views_are_by_chance_and_the_same_for_the_same_chance():
    image = torch.zeros(64, 1, 16, 16)
    image[:, :, 6:10, 6:10] = 1
    one, two, other = (views.moved(image, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert torch.equal(one, two) and not torch.equal(one, other)
    assert one.min() >= 0 and one.max() <= 1
    mass = one.sum((1, 2, 3)) / 16  # zoomed by 0.8 to 1.25, so an area times 0.64 to 1.5625; bilinear edges add some
    assert 0.55 < mass.min() < 0.8 and 1.3 < mass.max() < 1.75
    places = torch.arange(16.0)
    down = (one.sum((1, 3)) * places).sum(1) / one.sum((1, 2, 3)) - 7.5
    assert down.abs().max() < 16 * 0.125 * 1.25 + 0.1 and down.abs().max() > 1
