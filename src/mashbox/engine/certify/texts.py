"""What the checks read: samples of many scripts, and stories as long as needed. All of it is our own."""

# ruff: noqa: RUF001
from __future__ import annotations

import random

SAMPLES: tuple[tuple[str, str], ...] = (
    ("English", "The quick ferry doesn't leave before 7:45; it's \"late\", again (as ever)."),
    ("accents", "Zoë's café près de Málaga: naïve façade, smørrebrød, žluťoučký kůň, İstanbul, ß."),
    ("combining marks", "e\u0301 and \u00e9, n\u0303 and \u00f1, Vie\u0323\u0302t"),
    ("Greek", "Το καράβι φεύγει στις οκτώ το πρωί."),
    ("Cyrillic", "Паром отходит в восемь утра, как всегда."),
    ("Hebrew", "המעבורת יוצאת בשמונה בבוקר."),
    ("Arabic", "تغادر العبّارة في الثامنة صباحًا."),
    ("Devanagari", "नाव सुबह आठ बजे निकलती है।"),
    ("Thai", "เรือข้ามฟากออกตอนแปดโมงเช้า"),
    ("Chinese", "渡轮早上八点出发,请不要迟到。"),
    ("Japanese", "フェリーは午前八時に出ます。遅れないでください。"),
    ("Korean", "배는 아침 여덟 시에 떠납니다."),
    ("emoji", "Fine 🙂 👩‍👩‍👧‍👦 👍🏽 🇮🇸 ✈️ ☕"),
    ("rare characters", "𝔐𝔞𝔱𝔥 𐍈 ‰ ∮ ≠ ∑ ⟨x⟩ \u200b\u00a0\ufeff|"),
    ("white space", "a  b   c\td\n\n\ne\r\nf  \n  g\t\t"),
    ("code", "def f(x: int = 0) -> str:\n    return f\"{x:>08.3f}\" if x else '\\n'  # {}[]<>|\n"),
    ("numbers", "3.14159 -2e-10 1,000,000 0x7FFF 12345678901234567890 1/2 50% $9.99"),
    ("markup", '<a href="x?y=1&amp;z=2">link</a> <!-- note --> [INST] </s> <b>'),
)
"""Names and texts that tokenising and spelling out again has to leave as they are."""

_WHO = ("The miller", "A tired pilot", "My neighbour", "The youngest sister", "An old gardener", "The clerk")
_DID = ("counted", "painted", "lost", "repaired", "described", "forgot", "carried home", "drew")
_WHAT = (
    "seven lanterns",
    "a map of the valley",
    "the broken clock",
    "two letters",
    "an empty jar",
    "the key",
)
_WHEN = ("before sunrise", "in late March", "after the storm", "twice a week", "while it rained", "at noon")
_WHY = ("nobody asked", "the bridge was closed", "it was cheaper", "the bells rang", "the road was long")


def story(number: int, sentences: int) -> str:
    """A text of its own for each number, from the first word on; the same in every run."""
    draw = random.Random(number)
    told = (
        f"{draw.choice(_WHO)} {draw.choice(_DID)} {draw.choice(_WHAT)} {draw.choice(_WHEN)}, "
        f"because {draw.choice(_WHY)}; that made {draw.randint(2, 990)} of {draw.randint(1000, 9000)}."
        for _ in range(sentences)
    )
    return f"{number}. " + " ".join(told)
