from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirecost.corpus.wikitext import is_redirect, plain_text

pytest.importorskip("mwparserfromhell")


@pytest.mark.parametrize(
    ("wikitext", "text"),
    [
        ("'''Bold''' and ''italic''.", "Bold and italic."),
        ("the ''Iliad'''s end", "the Iliad's end"),
        ("a {{t|x={{u|{{v}}}}|y}} b", "a b"),
        ("before {{never closed", "before {{never closed"),
        ("a\n{| class=x\n|-\n| cell {{t}}\n{| \n| inner\n|}\n|}\nb", "a\n\nb"),
        ("{{t|a|b|}} text", "text"),
        ("a <ref name=x>note [[b]]</ref>c<ref name=x/> d", "a c d"),
        ("a <!-- hidden {{ --> b", "a b"),
        ("<nowiki>[[a]] {{b}} ''c'' < d</nowiki>", "[[a]] {{b}} ''c'' < d"),
        ("[[target|shown]] and [[plain]]s", "shown and plains"),
        ("[[File:a.jpg|thumb|A [[link]] in it]]x", "x"),
        ("[[Datei:a.jpg|mini|Ein [[Link]]]]x[[Kategorie:K]]", "x"),
        ("[[Fichier:unknown.svg|vignette|légende]]x", "x"),
        ("text\n[[de:Anderes]]\n[[fr:Autre]]", "text"),
        ("see [http://a.b/c the site] and [http://a.b/d]", "see the site and"),
        ("x<sup>2</sup> &amp; y&nbsp;&lt; z<br/>w", "x2 & y < z\nw"),
        ("born ({{lang|el|x}}; {{b}}) in", "born in"),
        (
            "== A ==\ntext\n== Empty ==\n\n== Parent ==\n=== B ===\nmore\n== See also ==\n{{x}}",
            "A\ntext\n\nParent\nB\nmore",
        ),
        ("* one\n* two", "one\ntwo"),
        ("__NOTOC__\nwords", "words"),
        ("Ελληνικά, 中文。 العربية, עברית 🙂", "Ελληνικά, 中文。 العربية, עברית 🙂"),
        ("<math>x < 1</math>formula", "formula"),
        ("", ""),
    ],
)
def test_prose_remains(wikitext: str, text: str) -> None:
    assert plain_text(wikitext, ["datei", "kategorie"]) == text


@pytest.mark.parametrize("text", ["#REDIRECT [[a]]", "#redirect[[a]]", "  #Redirect: [[a]]", "#REDIRECCIÓN [[a]]"])
def test_a_redirect_is_known_by_its_text(text: str) -> None:
    assert is_redirect(text)
    assert not is_redirect(f"words {text}")


@pytest.mark.parametrize(
    "unit",
    [
        "{{",
        "{{a|",
        "[[",
        "[[a|b ",
        "<ref>",
        "{|\n|a",
        "[http://a ",
        "<div>\n* a",
        "<foo>",
        "<!--",
        "''",
        "== a ",
        "{{{",
    ],
)
def test_what_is_never_closed_takes_a_linear_time(unit: str) -> None:
    # An algorithm of quadratic time would take an hour here.
    # Entities that stand for brackets may be cut where the text is divided.
    assert len(plain_text(unit * 20_000)) <= 20_000 * len(unit) + 100


@given(
    st.lists(
        st.sampled_from(
            [
                "{{",
                "}}",
                "[[",
                "]]",
                "{|",
                "|}",
                "|-",
                "|",
                "'",
                "''",
                "'''",
                "<ref>",
                "</ref>",
                "<nowiki>",
                "</nowiki>",
                "<!--",
                "-->",
                "==",
                "=",
                "*",
                ":",
                "a",
                "b",
                "\n",
                "http://a.b",
                "&",
                "<",
                ">",
            ]
        ),
        max_size=60,
    )
)
def test_any_markup_is_read(units: list[str]) -> None:
    assert isinstance(plain_text(" ".join(units)), str)
    assert isinstance(plain_text("".join(units)), str)
