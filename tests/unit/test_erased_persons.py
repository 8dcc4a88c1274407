"""H12: a quarantined row is compared with all persons at once, as with each of them."""

from __future__ import annotations

import json
import random
import uuid

import pytest

from reliability.core.erasure import Person, Persons, Quarantined

UUIDS = [str(uuid.UUID(int=n * 7**40)) for n in range(3)]
VALUES = ["ann", "Ann", "bo li", "17", "3", "--", "a-b", "x_y", *UUIDS]
CONTENTS = [None, 17, 3, "ann,3", "BO LI; x", "a-b,17", "annx", f"{{{UUIDS[1].upper()}}}", *VALUES]


@pytest.mark.parametrize("text", ["CORP\\jdoe", 'Ann "A" Lee', "\tAnn\tLee"])
def test_a_text_that_json_escapes_is_found_in_a_record(text):
    """H12: the row stayed, and nobody was told that it may be this person's."""
    for record in (f"{text},x", json.dumps({"name": text})):
        row = Quarantined.of(json.dumps({"_record": record}), is_cut=False)
        assert Person("name", text).has(row) is Persons([Person("name", text)]).have(row) is None


def judged(persons, row):
    each = [person.has(row) for person in persons]
    return True if True in each else None if None in each else False


@pytest.mark.parametrize("seed", range(20))
def test_persons_together_have_the_rows_that_each_of_them_has(seed):
    chosen = random.Random(seed)
    for _ in range(100):
        persons = [
            Person("id", chosen.choice(UUIDS))
            if chosen.random() < 0.3
            else Person(chosen.choice(["name", "Name", "number"]), chosen.choice(VALUES))
            for _ in range(chosen.randint(1, 4))
        ]
        names = chosen.sample(["name", "NAME", "number", "id", "_record"], 3)
        text = json.dumps({name: chosen.choice(CONTENTS) for name in names}, separators=(",", ":"))
        is_cut = chosen.random() < 0.5
        contents = text[: chosen.randint(1, len(text))] if is_cut else text
        row = Quarantined.of(contents, is_cut=is_cut)
        assert Persons(persons).have(row) is judged(persons, row), (persons, row)


def test_a_row_of_a_large_erasure_is_not_compared_with_each_person(monkeypatch):
    persons = Persons(Person("name", f"ann-{n}") for n in range(1_000))
    each = Persons(Person("name", f"{n} li") for n in range(1_000))
    asked = []
    monkeypatch.setattr(Person, "has", lambda person, _: asked.append(person.text))
    assert persons.have(Quarantined.of('{"note":"…', is_cut=True)) is None
    assert asked == []
    assert each.have(Quarantined.of('{"_record":"17 li"}', is_cut=False)) is None
    assert asked == ["17 li"]
