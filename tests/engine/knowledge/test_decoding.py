"""Bytes as text: in which encoding, by what evidence, and what is refused."""

from __future__ import annotations

import codecs

import pytest

from antiphon.engine.knowledge.decoding import decode
from antiphon.errors import InvalidInput

CHINESE = "企业版支持单点登录、审计日志和自定义数据保留周期。团队版按月付费、每位成员三十九元。"
TRADITIONAL = "企業版支援單一登入、稽核日誌和自訂資料保留週期。團隊版按月付費、每位成員三十九元。"
JAPANESE = "図書館の開館時間は平日が午前九時から午後八時までです。本は十冊まで借りられます。"
KOREAN = "도서관은 평일 오전 아홉 시부터 저녁 여덟 시까지 엽니다. 책은 열 권까지 빌릴 수 있습니다."
RUSSIAN = "Привет, это обычный текст на русском языке, и в нём несколько слов."
GERMAN = "Über die Brücke führt kein Weg zurück, sagte der Fährmann und stieß ab."


@pytest.mark.parametrize(
    ("text", "encoding", "evidence"),
    [
        ("plain", "utf-8", "utf-8"),
        (CHINESE, "utf-8", "utf-8"),
        (CHINESE, "utf-16", "bom"),
        (CHINESE, "utf-32", "bom"),
        (CHINESE, "utf_16_le", "guessed"),
        (CHINESE, "gb18030", "guessed"),
        (
            "# Fees\n\nA berth costs nine crowns.\n\n# 退款\n\n退款须在七天内申请。",
            "gb18030",
            "guessed",
        ),
        (TRADITIONAL, "big5", "guessed"),
        (JAPANESE, "shift_jis", "guessed"),
        (JAPANESE, "euc_jp", "guessed"),
        (JAPANESE, "iso2022_jp", "escapes"),
        (KOREAN, "euc_kr", "guessed"),
        (RUSSIAN, "cp1251", "guessed"),
        (RUSSIAN, "koi8_r", "guessed"),
    ],
)
def test_a_text_is_read_in_the_encoding_that_it_is_in(
    text: str, encoding: str, evidence: str
) -> None:
    told = decode(text.encode(encoding))
    assert (told.text, told.encoding, told.evidence) == (text, encoding, evidence)


def test_western_text_reads_the_same_in_whichever_of_its_code_pages() -> None:
    assert decode(GERMAN.encode("cp1252")).text == GERMAN


def test_a_mark_at_the_beginning_is_evidence_and_no_text() -> None:
    told = decode(codecs.BOM_UTF8 + CHINESE.encode())
    assert (told.text, told.encoding, told.evidence) == (CHINESE, "utf-8", "bom")


def test_what_its_bringer_says_counts_before_any_guess() -> None:
    told = decode(GERMAN.encode("latin-1"), declared="ISO-8859-1")
    assert (told.text, told.encoding, told.evidence) == (GERMAN, "iso8859-1", "declared")


@pytest.mark.parametrize(
    ("data", "declared", "code"),
    [
        (b"", None, "empty_file"),
        (b" \r\n\t", None, "empty_file"),
        (b"\0\0\0\0", None, "empty_file"),
        (codecs.BOM_UTF8 + b"  ", None, "empty_file"),
        (b"%PDF-1.7\n...", None, "not_text"),
        (b"PK\x03\x04word/document.xml", None, "not_text"),
        (b"\x89PNG\r\n\x1a\n", None, "not_text"),
        (b"text\0more", None, "not_text"),
        (bytes(range(128, 256)) * 4, None, "not_text"),
        ("价".encode(), "ascii", "bad_encoding"),
        (b"text", "base64", "bad_encoding"),
        (b"text", "no-such-thing", "bad_encoding"),
        (codecs.BOM_UTF16_LE + b"a", None, "bad_encoding"),
    ],
)
def test_what_is_no_text_is_refused_with_its_name_and_the_reason(
    data: bytes, declared: str | None, code: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        decode(data, declared=declared, at="prices.md")
    assert caught.value.code == code
    assert caught.value.at in ("prices.md", declared)
