"""The check of manifests: each mistake is found, and named with what to write."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from ferrule.storage.plugins import manifests
from ferrule.storage.plugins.manifest_keys import check_manifest

FIELD = '[settings.deep]\nshort = "Its depth."\n'
ROWS = [
    ("need = {restricts = true}", "unknown key `need`: did you mean `needs`?"),
    ("restricts = true", "unknown key `restricts`: did you mean `needs.restricts`?"),
    ("needs = {restrict = true}", "unknown key `needs.restrict`: did you mean `restricts`?"),
    ("needs = {restricts = 'yes'}", "`needs.restricts` must be true or false"),
    ("needs = true", "`needs` must be a table"),
    ("helpp = 'x'", "unknown key `helpp`: did you mean `help`?"),
    ("help = ''", "`help` must be a text"),
    ("help = 3", "`help` must be a text"),
    ("optional = 'weather'", "`optional` must be a list of texts"),
    ("optional = [3]", "`optional` must be a list of texts"),
    ("object = 'a:B'", "unknown key `object`: only plugins that ship with Ferrule have it"),
    ("default = false", "unknown key `default`: only plugins that ship with Ferrule have it"),
    ("when = {own = ['x']}", "unknown key `when`: only plugins that ship with Ferrule have it"),
    ("settings = 3", "`settings` must be a table"),
    ("settings.deep = 3", "`settings.deep` must be a table"),
    ("[settings.'a-b']\nkind='text'\nshort='x'", "`settings.a-b` is not a name"),
    (FIELD, "`settings.deep.kind` is missing"),
    ("[settings.deep]\nkind = 'text'", "`settings.deep.short` is missing"),
    (FIELD + "kind = 'string'", "`settings.deep.kind` must be one of `text`"),
    (FIELD + "kind = 'bool'", "found `bool`"),
    (FIELD + "kind = ['text']", "`settings.deep.kind` must be one of"),
    (FIELD + "kind = 'integer'\ndefault = 'x'", "the default 'x' is not a whole number"),
    (FIELD + "kind = 'integer'\ndefault = true", "the default True is not a whole number"),
    (FIELD + "kind = 'flag'\ndefault = 0", "the default 0 is not true or false"),
    (FIELD + "kind = 'names'\ndefault = [[1]]", "the default [[1]] is not a list of texts"),
    (FIELD + "kind = 'integer'\ndefault = 9\nmaximum = 8", "the default 9 is out of range"),
    (FIELD + "kind = 'integer'\nminimum = 9\nmaximum = 8", "`minimum` is greater"),
    (FIELD + "kind = 'integer'\nminimum = '9'", "`settings.deep.minimum` must be a number"),
    (FIELD + "kind = 'integer'\nmimimum = 1", "did you mean `minimum`?"),
    (FIELD + "kind = 'text'\nminimum = 1", "`minimum` has no meaning for the kind `text`"),
    (FIELD + "kind = 'choice'", "a `choice` has `choices`"),
    (FIELD + "kind = 'choice'\nchoices = ['a']\ndefault = 'b'", "'b' is not among the choices"),
    (FIELD + "kind = 'text'\nchoices = ['a']", "`choices` have no meaning"),
    (FIELD + "kind = 'text'\nproject = 'free'", "unknown key `settings.deep.project`"),
    (FIELD + "kind = 'text'\nhas_variable = true", "only plugins that ship with Ferrule have it"),
    ("[commands.pond]\nobject = 'a:b'", "`commands.pond.help` is missing"),
    ("[commands.pond]\nobject = 'a.b'\nhelp = 'x'", "`commands.pond.object` must be `module:name`"),
    ("[commands.Pond]\nobject = 'a:b'\nhelp = 'x'", "`commands.Pond` is not a name"),
    ("[pages.pond]\nobject = 'a:b'", "`pages.pond.title` is missing"),
    ("[pages.pond]\nobject = 'a:b'\ntitel = 'x'", "did you mean `title`?"),
    ("[providers]\npond = 'a:b'", "`providers.pond` must be a table"),
    ("[provider.pond]\nclient = 'a:b'", "unknown key `provider`: did you mean `providers`?"),
    ("[page.pond]\nobject = 'a:b'\ntitle = 'x'", "unknown key `page`: did you mean `pages`?"),
]


@pytest.mark.proves("plugins.manifest-checked")
@pytest.mark.parametrize(("text", "said"), ROWS, ids=[text for text, _ in ROWS])
def test_a_mistake_is_named_and_what_has_it_is_left_out(text: str, said: str) -> None:
    table = tomllib.loads(text)
    valid, problems = check_manifest(table)
    assert said in "; ".join(problems)
    assert valid != table
    assert check_manifest(valid)[1] == ()


@pytest.mark.proves("plugins.manifest-checked")
def test_all_mistakes_are_named_at_once_and_the_rest_is_kept() -> None:
    table = tomllib.loads("need = {}\noptional = ['a']\nhelp = ''\n" + FIELD + "kind = 'text'")
    valid, problems = check_manifest(table)
    assert len(problems) == 2
    assert valid == {"optional": ["a"], "settings": table["settings"]}


@pytest.mark.proves("plugins.manifest-checked")
@pytest.mark.parametrize("kind", ["text", "flag", "integer", "number", "seconds", "path"])
def test_a_field_needs_no_default(kind: str) -> None:
    assert check_manifest(tomllib.loads(f"{FIELD}kind = '{kind}'"))[1] == ()


def test_the_manifests_that_ship_have_no_mistake() -> None:
    text = Path(manifests.__file__).with_name("shipped.toml").read_text()
    for name, table in tomllib.loads(text).items():
        assert check_manifest(table, ships=True) == (table, ()), name
