"""Which addresses a pull may reach, what a redirect may change, how long a server may make us wait."""

import pytest

from llamay.errors import PullError
from llamay.store import addresses
from llamay.store.addresses import Unresolved
from llamay.store.network import Network, Patience, Reply, Request, Transient, refusal, retry_after

PUBLIC = ["93.184.216.34", "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"]
PRIVATE = [
    "127.0.0.1", "127.9.9.9", "10.0.0.1", "172.16.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
    "255.255.255.255", "224.0.0.1", "240.0.0.1", "198.18.0.1", "192.0.2.1", "::", "::1", "fe80::1", "fe80::1%eth0",
    "fc00::1", "fd00:ec2::254", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a00:1",
    "2002:7f00:1::", "2002:a00:1::", "2001:db8::1", "not an address",
]  # fmt: skip


@pytest.mark.parametrize("address", PUBLIC)
def test_public(address: str) -> None:
    assert addresses.is_public(address)


@pytest.mark.parametrize("address", PRIVATE)
def test_private(address: str) -> None:
    assert not addresses.is_public(address)


def route(url: str, found: list[str], trusted: bool = False, insecure: bool = False) -> list[str]:
    return addresses.route(url, trusted=trusted, insecure=insecure, resolver=lambda host, port: found)


def test_a_host_nobody_named_must_be_public_in_every_address_and_speak_https() -> None:
    assert route("https://cdn.example/x", ["8.8.8.8", "2606:4700::1"]) == ["8.8.8.8", "2606:4700::1"]
    with pytest.raises(PullError, match=r"private address 10\.0\.0\.1"):
        route("https://cdn.example/x", ["8.8.8.8", "10.0.0.1"])
    with pytest.raises(PullError, match="plain http"):
        route("http://cdn.example/x", ["8.8.8.8"])
    with pytest.raises(Unresolved):
        route("https://cdn.example/x", [])


def test_a_named_host_may_be_private_but_http_stays_on_this_machine() -> None:
    assert route("https://nas.local/x", ["192.168.0.2"], trusted=True) == ["192.168.0.2"]
    assert route("http://localhost/x", ["127.0.0.1", "::1"], trusted=True) == ["127.0.0.1", "::1"]
    for found in (["192.168.0.2"], ["8.8.8.8"], ["127.0.0.1", "8.8.8.8"]):
        with pytest.raises(PullError, match="from this machine only"):
            route("http://nas.local/x", found, trusted=True)
    assert route("http://nas.local/x", ["192.168.0.2"], trusted=True, insecure=True) == ["192.168.0.2"]


@pytest.mark.parametrize(
    ("current", "location", "target"),
    [
        ("https://a/x/y", "z", "https://a/x/z"),
        ("https://a/x/y", "/z?q=1#part", "https://a/z?q=1"),
        ("https://a/x", "//b/c", "https://b/c"),
        ("https://a/x", "https://b/c", "https://b/c"),
    ],
)
def test_redirects(current: str, location: str, target: str) -> None:
    assert addresses.redirected(current, location) == target


@pytest.mark.parametrize("location", ["https://[::1", "//[", "https://a]"])
def test_a_redirect_to_what_is_no_url_is_refused(location: str) -> None:
    with pytest.raises(PullError, match="no URL"):
        addresses.redirected("https://a/x", location)


@pytest.mark.parametrize("proxy", ["http://[::", "ftp://a", "http://a:x", "rubbish ["])
def test_a_proxy_that_cannot_be_used_is_told(proxy: str) -> None:
    with Network(proxy=proxy, resolver=lambda host, port: ["8.8.8.8"]) as network, pytest.raises(PullError, match="proxy"):
        network.page(Request("https://a/x"), 1000)


@pytest.mark.parametrize(
    "location", ["http://a/x", "HTTP://a/x", "ftp://a/x", "file:///x", "javascript:1", "gopher://a"]
)
def test_redirects_never_change_the_scheme(location: str) -> None:
    with pytest.raises(PullError, match="another scheme"):
        addresses.redirected("https://a/x", location)


@pytest.mark.parametrize(
    "url", ["https://", "https:///x", "https://a b/", "https://a:99999/", "https://a:x/", "https://a%2fb/", "https://[::1",
            "https://a\\b/", "https://a\n/", "ftp://a/"]
)  # fmt: skip
def test_what_is_no_place_to_go(url: str) -> None:
    with pytest.raises(PullError):
        addresses.endpoint(url)


@pytest.mark.parametrize(
    ("url", "netloc"),
    [
        ("https://A.Example:443/x", "a.example"),
        ("http://a:8080", "a:8080"),
        ("https://[2606::1]:8443/", "[2606::1]:8443"),
    ],
)
def test_places(url: str, netloc: str) -> None:
    assert addresses.endpoint(url).netloc == netloc


class Script(Network):
    """A network whose single requests are answered by a table; notes what was sent where."""

    __slots__ = ("answers", "sent")

    def _send(self, url, headers, trusted):  # the wire itself
        import contextlib

        addresses.route(url, trusted=trusted, insecure=False, resolver=self.resolver)
        self.sent.append((url, headers.get("Authorization"), trusted))
        status, location = self.answers[url]
        return contextlib.nullcontext(Reply(url, status, {"location": location}, iter([b"body"])))


def scripted(answers: dict[str, tuple[int, str]], known: dict[str, str]) -> Script:
    network = Script(resolver=lambda host, port: [known[host]])
    network.answers, network.sent = answers, []
    return network


def test_credentials_do_not_follow_a_redirect_to_another_host() -> None:
    network = scripted(
        {
            "https://hub.example/m": (302, "https://cdn.example/m?sig=1"),
            "https://cdn.example/m?sig=1": (302, "https://hub.example/n"),
            "https://hub.example/n": (200, ""),
        },
        {"hub.example": "10.0.0.1", "cdn.example": "8.8.8.8"},
    )
    with network.open(Request("https://hub.example/m", authorization="Bearer secret")) as reply:
        assert b"".join(reply.chunks) == b"body"
    assert network.sent == [
        ("https://hub.example/m", "Bearer secret", True),
        ("https://cdn.example/m?sig=1", None, False),
        ("https://hub.example/n", "Bearer secret", True),
    ]


def test_a_redirect_to_another_port_of_the_host_is_another_server() -> None:
    network = scripted({"https://nas.local/m": (302, "https://nas.local:8443/m")}, {"nas.local": "192.168.0.2"})
    with pytest.raises(PullError, match="private address"), network.open(Request("https://nas.local/m")):
        pass
    assert len(network.sent) == 1


def test_an_untrusted_request_is_judged_from_its_first_step() -> None:
    network = scripted({}, {"meta.example": "169.254.169.254"})
    with (
        pytest.raises(PullError, match="private address"),
        network.open(Request("https://meta.example/", trusted=False)),
    ):
        pass


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7", 7.0), ("0", 0.0), ("Thu, 01 Jan 1970 00:01:40 GMT", 40.0), ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0), ("", None),
     ("soon", None), ("-5", None), ("1" * 400, 111111111.0), ("١", None)],
)  # fmt: skip
def test_retry_after(text: str, seconds: float | None) -> None:
    assert retry_after(text, now=60.0) == seconds


def test_refusals_are_sorted() -> None:
    for status in (408, 425, 429, 500, 502, 503, 504):
        assert isinstance(refusal(Reply("https://a/x", status, {}, iter(()))), Transient)
    for status in (400, 401, 403, 404, 410, 451, 501, 999):
        assert isinstance(refusal(Reply("https://a/x", status, {}, iter(()))), PullError)


def test_patience_doubles_forgets_after_progress_and_ends() -> None:
    waits: list[float] = []
    patience = Patience(attempts=4, sleep=waits.append)
    for _ in range(3):
        patience.wait(Transient("cut"), "m", lambda text: None)
    assert waits[0] < waits[1] < waits[2]
    patience.progressed(1 << 20)
    for _ in range(3):
        patience.wait(Transient("cut"), "m", lambda text: None)
    with pytest.raises(PullError, match="m: cut; gave up after 4 tries"):
        patience.wait(Transient("cut"), "m", lambda text: None)
