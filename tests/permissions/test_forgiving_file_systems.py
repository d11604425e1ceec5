"""Names on a file system that does not tell every spelling apart, as that of a Mac: simulated."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.permissions.path_denials import PathDenials
from ferrule.permissions.protected_names import DEFAULT_NAMES, ProtectedNames
from ferrule.permissions.rule_matching import make_path_matcher
from ferrule.permissions.rules import parse_rule

pytestmark = pytest.mark.proves("permissions.deny-every-spelling")


class MacVolume:
    """Files by name, as APFS finds them: in any case, in either normal form."""

    def __init__(self, *paths: str) -> None:
        self._files = {self._key(path): path for path in paths}

    def find(self, path: str) -> str | None:
        """The file that is opened by this spelling."""
        return self._files.get(self._key(path))

    @staticmethod
    def _key(path: str) -> str:
        return unicodedata.normalize("NFD", unicodedata.normalize("NFD", path).casefold())


LETTERS = "abéÉßſσςΣİıÅ\u0301Ω1-_ "
NAMES = st.text(LETTERS, min_size=1, max_size=6).filter(lambda name: name.strip() == name)


@st.composite
def respelled(draw: st.DrawFn, text: str) -> str:
    """Another spelling of a text: each character in some case, the whole in some normal form."""
    changes = (str.lower, str.upper, str.casefold, str)
    letters = [draw(st.sampled_from(changes))(letter) for letter in text]
    form = draw(st.sampled_from(("NFC", "NFD")))
    return unicodedata.normalize(form, "".join(letters))


def deny(specifier: str) -> PathDenials:
    rule = parse_rule(f"Read({specifier})", "deny")
    return PathDenials((rule,), "/work", "/home/p")


@given(st.data(), NAMES)
def test_a_deny_rule_holds_for_every_spelling_that_opens_the_file(
    data: st.DataObject, name: str
) -> None:
    volume = MacVolume(f"{name}/key.txt")
    spelling = data.draw(respelled(name)) + "/KEY.txt"
    if volume.find(spelling) is None:
        return  # it opens nothing
    denials = deny(f"{name}/**")
    assert denials.find_refusal(f"{name}/key.txt", write=False)
    assert denials.find_refusal(spelling, write=False)


@given(st.data(), st.sampled_from(("/work", "/Users/Zoé/projekt")), NAMES)
def test_the_folder_above_may_be_spelled_in_another_way_too(
    data: st.DataObject, root: str, name: str
) -> None:
    matches = make_path_matcher(f"{name}/**", root, root, "/home/p", careful=True)
    path = f"{root}/{name}/key"
    spelling = data.draw(respelled(path))
    assert matches(path)
    assert matches(spelling) or MacVolume(path).find(spelling) is None


@pytest.mark.parametrize("name", ["café", "straße", "Æ", "e\u0301"])
def test_a_wildcard_for_one_character_matches_what_it_did(name: str) -> None:
    pattern = name[:-1] + "?"
    assert make_path_matcher(pattern, "/w", "/w", "/h", careful=True)(f"/w/{name}")


@given(st.data(), st.sampled_from((".env", ".git/hooks/x", "id_rsa", "a.pem", ".ferrule/x")))
def test_a_protected_name_is_protected_in_every_spelling(data: st.DataObject, name: str) -> None:
    spelling = data.draw(respelled(name))
    assert DEFAULT_NAMES.check(name, write=True)
    assert DEFAULT_NAMES.check(spelling, write=True) or MacVolume(name).find(spelling) is None


@given(st.data(), NAMES)
def test_a_persons_own_protected_name_is_too(data: st.DataObject, name: str) -> None:
    names = ProtectedNames(secret=(name,))
    spelling = data.draw(respelled(name))
    if MacVolume(name).find(spelling) is not None and names.check(name, write=False):
        assert names.check(spelling, write=False)
