"""Results of an image lab and of a signal lab made by hand: every number follows from the tables here."""

START = {"nope": 0.4, "learned": 0.9, "grid": 0.9, "axial": 0.95}
"""Accuracy at the trained size; 0.5 for others."""
FALL = {"nope": 0.0, "learned": 0.3, "grid": 0.1, "axial": 0.2, "axial linear": 0.05}
"""How much less at any other size."""
ABOUT = {
    "date": "2026-01-01T00:00:00+00:00",
    "python": "3.11",
    "machine": "x86_64",
    "system": "Linux",
    "cores": 2,
    "versions": {"milepost": "0.1.0"},
}
IMAGES = 100


def accuracy(encoding, strategy, size, trained, seed):
    """What the tables give; seeds are a point apart."""
    name = encoding if strategy == "none" else f"{encoding} {strategy}"
    return START.get(encoding, 0.5) - (FALL.get(name, 0.1) if size != trained else 0.0) + 0.01 * seed


def images(
    encodings=("nope", "learned", "grid", "axial"),
    sizes=((4, 6), (8, 12), (16, 24)),
    trained=(8, 12),
    seeds=(0, 1),
    **other,
):
    """A whole results.json of images of 4 x 6 patches."""
    runs = []
    for seed in seeds:
        for encoding in encodings:
            for strategy in ("none", "linear") if encoding == "axial" else ("none",):
                rows, right = [], {}
                first = accuracy(encoding, strategy, trained, trained, seed)
                for size in sizes:
                    row = {"size": list(size), "grid": [size[0] // 2, size[1] // 2], "times": size[0] / trained[0]}
                    if encoding == "learned" and size > trained:
                        rows.append(
                            {
                                **row,
                                **dict.fromkeys(("accuracy", "low", "high", "loss")),
                                "images": 0,
                                "note": "table ends",
                            }
                        )
                        continue
                    value = accuracy(encoding, strategy, size, trained, seed)
                    right[f"{size[0]}x{size[1]}"] = "1" * round(value * IMAGES) + "0" * (IMAGES - round(value * IMAGES))
                    change = {
                        "change": value - first,
                        "change_low": value - first - 0.04,
                        "change_high": value - first + 0.04,
                    }
                    rows.append(
                        {
                            **row,
                            "accuracy": value,
                            "low": value - 0.05,
                            "high": value + 0.05,
                            "loss": 2 - value,
                            "images": IMAGES,
                            **change,
                        }
                    )
                run = {
                    "encoding": encoding,
                    "strategy": strategy,
                    "seed": seed,
                    "data": "image",
                    "parameters": 1000,
                    "accuracy_by_size": rows,
                }
                run |= {"right_by_size": right, "train_tokens_per_s": 900.0, "peak_mb": 400.0}
                if strategy == "none":
                    run["similarity"] = similarity(seed)
                runs.append(run)
    compared = [
        {
            "encoding": "axial",
            "strategy": "none",
            "seed": seed,
            "against": f"{base}, none",
            "size": list(size),
            "difference": 0.5,
            "low": 0.4,
            "high": 0.6,
        }
        for seed in seeds
        for size in sizes
        for base in ("nope", "learned")
        if base == "nope" or size <= trained
    ]
    plan = {
        "profile": "tiny",
        "shape": {"sides": [4, 6], "channels": 4, "classes": 10, "layers": 1, "width": 16, "heads": 2},
        "size": list(trained),
        "patch": 2,
        "steps": 20,
        "rows": 8,
        "sizes": [list(size) for size in sizes],
        "seeds": list(seeds),
        "encodings": list(encodings),
        "modality": "image",
    }
    told = {
        "source": "made by hand",
        "sha256": "ab" * 32,
        "classes": list("0123456789"),
        "train_images": 300,
        "test_images": IMAGES,
    }
    protocol = {"plan": plan, "images": told, "intervals": "95%"}
    return {
        "schema": 1,
        "runs": runs,
        "comparisons": compared,
        "missing": [],
        "failed": [],
        "provenance": {**ABOUT, "protocol": protocol},
        **other,
    }


def similarity(seed=0):
    """Maps of 4 x 6 patches: patch n is to cell m as -|n - m| / 10, and attends to it by (n + m) / 100."""
    patches = [[r, c] for r in range(4) for c in range(6)]
    alone = [[-abs(n - m) / 10 for m in range(24)] for n in range(24)]
    seen = [[(n + m) / 100 + seed for m in range(24)] for n in range(24)]
    maps = [{"what": "bias", "values": alone}, {"what": "attention of the trained model", "values": seen}]
    return {"grid": [4, 6], "patches": patches, "maps": maps}


def signals(kind="video", encodings=("nope", "axial(axes=3)"), seeds=(0,), **other):
    """A whole results.json of signals: axial knows every axis, others none."""
    axes = {"video": ["frame", "row", "column"], "eeg": ["window", "band", "electrode row", "electrode column"]}[kind]
    runs = []
    for seed in seeds:
        for encoding in encodings:
            knows = encoding.startswith("axial")
            right, turned = (0.97, 0.95) if knows else (0.5, 0.0)
            rows = [
                {
                    "axis": axis,
                    "right": right,
                    "right_low": right - 0.02,
                    "right_high": right + 0.02,
                    "turned": turned,
                    "turned_low": max(0, turned - 0.02),
                    "turned_high": turned + 0.02,
                    "others": 0.01,
                    "learned": knows,
                    "moved_by": 1048576,
                    "change": 1e-12 if knows else 0.0,
                    "control": 0.5 if knows else 0.0,
                    "largest_logit": 4.0,
                }
                for axis in axes
            ]
            about = {
                "encoding": encoding,
                "strategy": "none",
                "seed": seed,
                "data": kind,
                "parameters": 1000,
                "train_tokens_per_s": 900.0,
                "peak_mb": 400.0,
            }
            runs.append(
                {**about, "accuracy": 0.9 if knows else 0.125, "chance": 0.125, "signals": 512, "by_axis": rows}
            )
    plan = {
        "profile": "tiny",
        "modality": kind,
        "shape": {"sides": [4, 3, 5], "channels": 9, "classes": 8},
        "steps": 20,
        "rows": 8,
        "tested": 512,
    }
    told = {"kind": kind, "axes": axes, "sides": [4, 3, 5, 3][: len(axes)], "channels": 9, "sha256": "cd" * 32}
    protocol = {
        "plan": {**plan, "seeds": list(seeds), "encodings": list(encodings)},
        "signals": told,
        "intervals": "95%",
    }
    return {
        "schema": 1,
        "runs": runs,
        "comparisons": [],
        "missing": [],
        "failed": [],
        "provenance": {**ABOUT, "protocol": protocol},
        **other,
    }
