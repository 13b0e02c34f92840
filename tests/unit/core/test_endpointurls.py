"""URLs of endpoints: taken apart, or refused with what to change."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.core.endpointurls import EndpointUrl, InvalidUrl


@pytest.mark.parametrize(
    ("url", "expected", "authority"),
    [
        ("http://host", EndpointUrl(False, "host", 80, "/"), "host"),
        ("https://host", EndpointUrl(True, "host", 443, "/"), "host"),
        ("https://host:80/a/b?c=d&e", EndpointUrl(True, "host", 80, "/a/b?c=d&e"), "host:80"),
        ("http://host:80?q", EndpointUrl(False, "host", 80, "/?q"), "host"),
        ("http://[::1]:8080/x", EndpointUrl(False, "::1", 8080, "/x"), "[::1]:8080"),
        ("http://10.0.0.1/%0d%0a", EndpointUrl(False, "10.0.0.1", 80, "/%0d%0a"), "10.0.0.1"),
        ("HTTP://A.b-c.svc/", EndpointUrl(False, "a.b-c.svc", 80, "/"), "a.b-c.svc"),
    ],
)
def test_a_url_is_taken_apart(url: str, expected: EndpointUrl, authority: str) -> None:
    assert EndpointUrl.parse(url) == expected
    assert expected.authority == authority
    assert expected.where == f"{'https' if expected.tls else 'http'}://{authority}"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "expected http"),
        ("host/path", "expected http"),
        ("ftp://host", "expected http"),
        ("http://", "expected http"),
        ("http:///path", "expected http"),
        ("http://host:99999", "no URL"),
        ("http://host:0", "no host"),
        ("http://host:x", "no URL"),
        ("http://user:secret@host", "user or a password"),
        ("http://host/#part", "fragment"),
        ("http://ho st/", "percent-encode"),
        ("http://host/a b", "percent-encode"),
        ("http://host/\r\nx: y", "percent-encode"),
        ("http://höst/", "percent-encode"),
        ("http://a,b/", "no host"),
        ("http://[::1", "no URL"),
    ],
)
def test_what_cannot_be_requested_is_refused_with_what_to_change(url: str, says: str) -> None:
    with pytest.raises(InvalidUrl, match=says) as caught:
        EndpointUrl.parse(url)
    assert "secret" not in str(caught.value)


@given(
    st.text(max_size=40) | st.builds("http://{}".format, st.text(st.characters(codec="ascii"), max_size=40))
)
def test_any_text_is_refused_or_can_stand_in_a_request(url: str) -> None:
    try:
        parsed = EndpointUrl.parse(url)
    except InvalidUrl:
        return
    assert parsed.target.startswith("/")
    assert all("!" <= letter <= "~" for letter in parsed.target + parsed.authority)
    assert 0 < parsed.port < 65536
    assert urlsplit(parsed.where + parsed.target).hostname == parsed.host
