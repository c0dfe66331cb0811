"""The colours of every picture and of the HTML report, by their part, for a light and for a dark page.

The six series have the hues of Okabe and Ito. Their shades are such that each has a contrast of 3:1 to its ground, and
that a deuteranope and a protanope can tell each two apart, and each from `quiet`.
"""

PALETTE = {  # part: (light, dark)
    "ground": ("#ffffff", "#14171c"),
    "ink": ("#1b1f24", "#e8eaed"),
    "quiet": ("#5c6670", "#a3adb8"),
    "grid": ("#d5dae0", "#363c45"),
    "first": ("#1e5096", "#0575e8"),
    "second": ("#c98205", "#eea916"),
    "third": ("#17a36e", "#4db56d"),
    "fourth": ("#9e3300", "#be4301"),
    "fifth": ("#918bc1", "#845697"),
    "sixth": ("#0795fa", "#63b8ff"),
}
LIGHT = {part: light for part, (light, _) in PALETTE.items()}
SERIES = ("first", "second", "third", "fourth", "fifth", "sixth")
