"""The colours of every picture and of the HTML report, by their part, for a light and for a dark page.

The six series begin at the hues of Okabe and Ito. From there a search moved them: each has a contrast of 3:1 to
`ground` and `card`, and for a deuteranope and a protanope each two differ by a Delta E of 30, also from `quiet`.
"""

PALETTE = {  # part: (light, dark)
    "ground": ("#ffffff", "#14171c"),
    "card": ("#f5f6f7", "#1b1f25"),
    "ink": ("#1b1f24", "#e8eaed"),
    "quiet": ("#5c6670", "#a3adb8"),
    "grid": ("#d5dae0", "#363c45"),
    "first": ("#263988", "#0379f0"),
    "second": ("#c47803", "#f5ac17"),
    "third": ("#4e975e", "#56b970"),
    "fourth": ("#8b2e03", "#c14605"),
    "fifth": ("#6c8ac4", "#71659a"),
    "sixth": ("#1483f8", "#24bcfe"),
}
LIGHT = {part: light for part, (light, _) in PALETTE.items()}
SERIES = ("first", "second", "third", "fourth", "fifth", "sixth")
