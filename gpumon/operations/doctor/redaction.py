"""Takes out of a text what tells whose machine it is, and counts what was taken.

The same name, address or UUID gets the same new name, so that the text can still be followed.
"""

import re
from collections import Counter
from collections.abc import Iterable
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final

USER: Final = "user"
HOST: Final = "host"
ADDRESS: Final = "address"
UUID: Final = "UUID"
IDENTIFIER: Final = "identifier"
SERIAL: Final = "serial number"
HOME: Final = "home folder"
SECRET: Final = "secret"  # noqa: S105 - it is what is said in the place of one

_SHORTEST_NAME: Final = 2
_NOBODYS_NAMES: Final = frozenset(
    {
        "root",
        "nobody",
        "localhost",
        "ubuntu",
        "debian",
        "fedora",
        "centos",
        "ec2-user",
        "admin",
        "user",
        "nvidia",
        "docker",
    }
)
"""Names that images and systems give: they tell nothing, and stand in texts for other things."""
_SECRET_NAME: Final = re.compile(r"TOKEN|SECRET|PASS|PWD|CREDENTIAL|PRIVATE|COOKIE|_?KEY$|AUTH", re.I)
_SECRETS: Final = (
    re.compile(r"-----BEGIN [A-Z ]+-----.*?-----END [A-Z ]+-----", re.DOTALL),
    re.compile(r"(?<=://)[^\s/@\"']+:[^\s/@\"']+(?=@)"),
    re.compile(r"\b(?:gh[opsu]_|github_pat_|hf_|glpat-|xox[abprs]-|sk-|AKIA|AIza|ya29\.)[\w.-]{12,}"),
    re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"),
    re.compile(r"(?i)\b[\w-]*(?:token|secret|password|passwd|api_?key)=[^\s\"',&]+"),
)
_RANDOM: Final = re.compile(r"(?<![\w+=-])(?=[\w+=-]*\d)(?=[\w+=-]*[a-zA-Z])[\w+=-]{32,}(?![\w+=-])", re.ASCII)
_UUID: Final = re.compile(r"\b(?:(?:GPU|MIG)-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.I)
_IDENTIFIER: Final = re.compile(r"\b[0-9a-f]{32,}\b", re.I)
_SERIAL: Final = re.compile(r"(?i)(serial(?: ?number)?\"?\s*[:=]\s*\"?)([\w-]{4,})")
_HOME: Final = re.compile(r"/(?:home|Users)/[^/\s\"':]+")
_MAC: Final = re.compile(r"\b[0-9a-f]{2}(?::[0-9a-f]{2}){5}\b", re.I)
_IPV4: Final = re.compile(r"(?<!\w)(?<!==)(?<!\d\.)(?<!\.so\.)\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\d)", re.ASCII)
_IPV6: Final = re.compile(r"(?<![\w:.])[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,7}(?![\w:])", re.I)
_MAIL: Final = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+", re.ASCII)


class Redactor:
    """Rewrites texts.

    Args:
        users: Login names that are known.
        hosts: Host names that are known; short forms of them count as well.
        homes: Home folders that are known.

    Attributes:
        removed: How often something was taken out, by its kind.
    """

    def __init__(self, users: Iterable[str] = (), hosts: Iterable[str] = (), homes: Iterable[str] = ()) -> None:
        self.removed: Counter[str] = Counter()
        self._known: dict[tuple[str, str], str] = {}
        every_host = {part for host in hosts for part in (host, host.partition(".")[0])}
        self._names = [(kind, _words(names)) for kind, names in ((HOST, every_host), (USER, set(users)))]
        self._homes = sorted({home.rstrip("/") for home in homes if len(home.strip("/")) > 1}, key=len, reverse=True)

    def text(self, text: str) -> str:
        """The text without all that."""
        for pattern in _SECRETS:
            text = pattern.sub(lambda _: self._anonymous(SECRET), text)
        text = _UUID.sub(lambda found: self._numbered(UUID, found[0]), text)
        text = _IDENTIFIER.sub(lambda found: self._numbered(IDENTIFIER, found[0]), text)
        text = _SERIAL.sub(lambda found: found[1] + self._numbered(SERIAL, found[2]), text)
        text = _MAIL.sub(lambda found: self._numbered(ADDRESS, found[0]), text)
        text = _MAC.sub(lambda found: self._numbered(ADDRESS, found[0]), text)
        text = _IPV6.sub(lambda found: self._internet(found[0], IPv6Address), text)
        text = _IPV4.sub(lambda found: self._internet(found[0], IPv4Address), text)
        for home in self._homes:
            text = re.sub(rf"{re.escape(home)}(?![\w.-])", lambda _: self._home(), text)
        text = _HOME.sub(lambda _: self._home(), text)
        for kind, names in self._names:
            if names is not None:
                text = names.sub(lambda found, kind=kind: self._numbered(kind, found[0]), text)  # type: ignore[misc]
        return text

    def variable(self, name: str, value: str) -> str:
        """The value of an environment variable; one whose name or shape is that of a secret goes as a whole."""
        if _SECRET_NAME.search(name):
            return self._anonymous(SECRET)

        def hidden(found: re.Match[str]) -> str:
            return found[0] if _UUID.search(found[0]) else self._anonymous(SECRET)

        return self.text(_RANDOM.sub(hidden, value))

    def _anonymous(self, kind: str) -> str:
        self.removed[kind] += 1
        return f"<{kind}>"

    def _home(self) -> str:
        self.removed[HOME] += 1
        return "~"

    def _numbered(self, kind: str, found: str) -> str:
        self.removed[kind] += 1
        key = (kind, found.lower())
        if key not in self._known:
            self._known[key] = f"<{kind} {sum(each == kind for each, _ in self._known) + 1}>"
        return self._known[key]

    def _internet(self, found: str, kind: type[IPv4Address] | type[IPv6Address]) -> str:
        """What looks like an address, replaced if it is one that tells something."""
        try:
            address = kind(found)
        except AddressValueError:
            return found
        return found if address.is_loopback or address.is_unspecified else self._numbered(ADDRESS, found)


def _words(names: Iterable[str]) -> re.Pattern[str] | None:
    """A pattern of the names where they stand apart, the longest first; None if there is none."""
    telling = {name for name in names if len(name) >= _SHORTEST_NAME and name.lower() not in _NOBODYS_NAMES}
    if not telling:
        return None
    listed = "|".join(re.escape(name) for name in sorted(telling, key=len, reverse=True))
    return re.compile(rf"(?<![^\W_])(?:{listed})(?![^\W_])", re.I)
