"""Replaces names, addresses, identifiers, and secrets in a text, and counts the replacements.

The same name, address, or UUID always gets the same replacement, so that the text stays readable.
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
NAME: Final = "name"
INTERFACE: Final = "network interface"
LIBRARY: Final = "library"
SECRET: Final = "secret"  # noqa: S105 - the replacement for one

_MIN_NAME: Final = 2
_GENERIC_NAMES: Final = frozenset({
    "root", "nobody", "localhost", "ubuntu", "debian", "fedora", "centos", "ec2-user", "admin", "user", "nvidia",
    "docker",
})  # fmt: skip
"""Default names of systems and images: they identify no one, and are also ordinary words."""
_SECRET_NAME: Final = re.compile(r"TOKEN|SECRET|PASS|PWD|(?:^|_)PW(?:_|$)|CREDENTIAL|PRIVATE|COOKIE|_?KEY$|AUTH", re.I)
_CONFIDENTIAL: Final = (
    r"(?:token|secret|passw(?:or)?d|pwd|passphrase|credentials?|signature|cookie"
    r"|(?:api|access|secret|private|license|account)[ _-]?key(?:[ _-]?id)?)"
)
_VALUE: Final = r"""(?:[^\s"'\\,;)}\]]|[,;)}\]](?=[^\s"'\\])|\\(?!["']))+"""
"""Up to a space, a quote or punctuation at its end, so that a JSON document stays one."""
_SECRETS: Final = (
    re.compile(r"-----BEGIN [A-Z ]+-----.*?-----END [A-Z ]+-----", re.DOTALL),
    re.compile(r"(://)[^\s/\"']+(?=@)"),
    re.compile(r"(?<![\w.:/@+-])(?!\w+:[\w.-]+@sha\d+:)[\w.+-]+:[^\s/\"'@]+(?:@[^\s/\"'@]+)*(?=@[\w\[<])"),
    re.compile(r"\b(?:gh[opsu]_|github_pat_|hf_|glpat-|xox[abprs]-|sk-|AKIA|AIza|ya29\.)[\w.-]{12,}"),
    re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"),
    re.compile(rf"(?i)((?:\bauthorization\b\W{{1,5}}\w+|\bbearer)\s+(?!<))(?=\S*\d){_VALUE}"),
    re.compile(rf"""(?i)({_CONFIDENTIAL}\\?["']?\s?[=:]\s?\\?["']?)(?![\s<]){_VALUE}"""),
    re.compile(rf"(\b[A-Z0-9_]*(?:_KEY|_PW|_PASS|_AUTH)=[\"']?)(?!<){_VALUE}"),
    re.compile(
        r"""(?i)((?<![^\s"'])--?[\w-]*(?:credential|key[_-]?file|auth|"""
        rf"""{_CONFIDENTIAL})(?![a-z])[\w-]*(?:[ =]|\\?["'],\s*)\\?["']?)(?![<-]){_VALUE}"""
    ),
    re.compile(r"([?&](?:sig|key|code)=)[^\s&\"'<]+"),
    re.compile(r"(://[^\s\"'<]*hooks?[^\s/\"'<]*/)[^\s\"'<]+"),
    re.compile(rf"(?<!\S)(-u )\S+:{_VALUE}"),
)
"""Secrets; the first group, if there is one, stays."""
_RANDOM: Final = re.compile(r"(?<![\w+=-])(?=[\w+=-]*\d)(?=[\w+=-]*[a-zA-Z])[\w+=-]{32,}(?![\w+=-])", re.ASCII)
_UUID: Final = re.compile(r"\b(?:(?:GPU|MIG)-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.I)
_IDENTIFIER: Final = re.compile(r"\b[0-9a-f]{32,}\b", re.I)
_SERIAL: Final = re.compile(r"(?i)(serial(?: ?number)?\"?\s*[:=]\s*\"?)([\w-]{4,})")
_HOME: Final = re.compile(r"/(?:home|Users)/[^/\s\"':]+")
_URL_HOST: Final = re.compile(r"(://(?:<secret>@)?|<secret>@)(?!\d+(?:\.\d+){3})([a-z0-9][\w.-]*)", re.I | re.ASCII)
_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_DOMAIN: Final = re.compile(rf"(?<![\w./-])(?!torch\.)(?:{_LABEL}\.){{2,}}[a-z]{{2,}}(?![\w-]|\.\w)", re.I)
_HOST_AND_PORT: Final = re.compile(rf"(?<![\w.:/<>-])({_LABEL}(?:\.{_LABEL})*):\d{{4,5}}(?![\w.:])", re.I)
_GENERIC_INTERFACE: Final = re.compile(
    r"(?:lo|eth|ib|bond|docker|wlan|usb|team|virbr|tun|tap|dummy|mlx\d+_|en[ops]\d|wl[ops]\d|ib[ops]\d)\w*", re.I
)
"""Names that Linux gives to interfaces and adapters by their position; others, and those with a MAC, are replaced."""
_INTERFACE_VARIABLE: Final = re.compile(r"IFNAME|NET_DEVICES|IB_HCA|_if_(?:in|ex)clude", re.I)
_LIBRARY_VARIABLE: Final = re.compile(r"^LD_PRELOAD$|^CUDA_INJECTION|^NCCL_\w+_PLUGIN$")
_GENERIC_LIBRARY: Final = re.compile(
    r"lib(?:jemalloc|tcmalloc\w*|mimalloc|g?omp|iomp5|[atu]san|ubsan|stdc\+\+|gcc_s|nccl[\w-]*|cu\w+|nv\w+|torch\w*|c10\w*"
    r"|mkl\w*|python[\d.]*|[cm]|pthread|dl|rt)[.\d-]*\.so[\d.]*"
)
_HOST_VARIABLE: Final = re.compile(r"(?:^|_)(?:ADDR|ADDRESS|HOST|HOSTNAME|SERVER|MASTER|NODE|NODENAME)$")
_HOST_VALUE: Final = re.compile(rf"(?=.*[\d.-])(?=.*[a-z]){_LABEL}(?:\.{_LABEL})*", re.I)
_PUBLIC_HOST: Final = re.compile(r"(?:[\w-]+\.)*(?:pytorch|nvidia|python|pypi|github|ubuntu|debian)\.(?:org|com)", re.I)
_PATH: Final = re.compile(r"(?<![\w.<>~])(?<!:/)~?(?:/[^\s/\"':;,=<>()\[\]{}|*]+)+")
_SYSTEM_FOLDERS: Final = frozenset({"usr", "lib", "lib32", "lib64", "etc", "proc", "sys", "dev", "bin", "sbin", "boot"})
_PUBLIC_NAME: Final = re.compile(
    r"~?|\.{1,2}|[\d.]+|lib[\w+-]*\.so[\d.]*|(?:vmlinuz|initrd)\S*|(?:user|system)\.slice|init\.scope|user-\d+\.slice"
    r"|session-\w+\.scope|kubepods[\w.-]*|docker|opt|data|datasets?|users?|home|root|net|nfs|gpfs|lustre|beegfs|mnt|media"
    r"|scratch\d*|work|workspace|projects?|groups?|shared?|local|tmp|var|run|srv|software|sw|apps?|modules?|runs?|logs?"
    r"|envs?|\.?venv|\.?virtualenvs?|conda|(?:mini|ana)conda\d*|mini(?:forge|mamba)\d*|mambaforge|\.?pyenv|versions|shims"
    r"|bin|include|lib(?:32|64)?|src|site-packages|dist-packages|python[\d.]*|torch|nvidia|cuda[\d.-]*|cudnn|nccl|openmpi"
    r"|hpcx|ucx|compat|extras|CUPTI|targets|x86_64-linux(?:-gnu)?|stubs|\.?cache|\.local|\.config|gpumon"
)
"""Names in paths that identify no one; every other name below a folder that is not the system's is replaced."""
_NAMING_VARIABLE: Final = re.compile(r"^(?:SLURM|OMPI|CONDA)_")
"""Variables of schedulers and environments have names of jobs, projects and people as values."""
_MAC: Final = re.compile(r"\b[0-9a-f]{2}(?::[0-9a-f]{2}){5}\b", re.I)
_IPV4: Final = re.compile(r"(?<!\w)(?<!==)(?<!\d\.)(?<!\.so\.)\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\d)", re.ASCII)
_IPV6: Final = re.compile(r"(?<![\w:.])[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,7}(?![\w:])", re.I)
_MAIL: Final = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+", re.ASCII)


class Redactor:
    """Replaces what identifies a person or a host.

    Short forms of host names are replaced, too. Interfaces with a name that Linux gives, and well-known libraries,
    stay.

    Attributes:
        removed: Number of replacements by kind.
    """

    def __init__(
        self,
        users: Iterable[str] = (),
        hosts: Iterable[str] = (),
        homes: Iterable[str] = (),
        interfaces: Iterable[str] = (),
        libraries: Iterable[str] = (),
    ) -> None:
        self.removed: Counter[str] = Counter()
        self._known: dict[tuple[str, str], str] = {}
        every_host = {part for host in hosts for part in (host, host.partition(".")[0])}
        kinds = (
            (LIBRARY, {name for name in libraries if not _GENERIC_LIBRARY.fullmatch(name)}),
            (INTERFACE, {name for name in interfaces if not _GENERIC_INTERFACE.fullmatch(name)}),
            (HOST, every_host),
            (USER, set(users)),
        )
        self._names = [(kind, _words(names)) for kind, names in kinds]
        self._homes = sorted({home.rstrip("/") for home in homes if len(home.strip("/")) > 1}, key=len, reverse=True)

    def text(self, text: str) -> str:
        """The text with all replacements."""
        text, count = _substitute_secrets(text)
        self.removed += Counter({SECRET: count})
        text = _UUID.sub(lambda match: self._numbered(UUID, match[0]), text)
        text = _IDENTIFIER.sub(lambda match: self._numbered(IDENTIFIER, match[0]), text)
        text = _SERIAL.sub(lambda match: match[1] + self._numbered(SERIAL, match[2]), text)
        text = _MAIL.sub(lambda match: self._numbered(ADDRESS, match[0]), text)
        text = _MAC.sub(lambda match: self._numbered(ADDRESS, match[0]), text)
        text = _IPV6.sub(lambda match: self._ip_address(match[0], IPv6Address), text)
        text = _IPV4.sub(lambda match: self._ip_address(match[0], IPv4Address), text)
        for home in self._homes:
            text = re.sub(rf"{re.escape(home)}(?![\w.-])", lambda _: self._home(), text)
        text = _HOME.sub(lambda _: self._home(), text)
        text = _URL_HOST.sub(lambda match: match[1] + self._host(match[2]), text)
        text = _DOMAIN.sub(lambda match: self._host(match[0]), text)
        text = _PATH.sub(lambda match: self._path(match[0]), text)
        for kind, names in self._names:
            if names is not None:
                text = names.sub(lambda match, kind=kind: self._numbered(kind, match[0]), text)  # type: ignore[misc]
        return text

    def variable(self, name: str, value: str) -> str:
        """The value of an environment variable; one with the name or the form of a secret is replaced completely."""
        if _SECRET_NAME.search(name):
            return self._anonymous(SECRET)

        def hidden(match: re.Match[str]) -> str:
            return match[0] if _UUID.search(match[0]) else self._anonymous(SECRET)

        value = _RANDOM.sub(hidden, value)
        if _NAMING_VARIABLE.match(name) and not value.startswith(("/", "<")) and re.search("[a-zA-Z]", value):
            return self._numbered(NAME, value)
        return self.text(value)

    def _host(self, name: str) -> str:
        is_public = name.lower() in _GENERIC_NAMES or _PUBLIC_HOST.fullmatch(name)
        return name if is_public else self._numbered(HOST, name)

    def _path(self, path: str) -> str:
        first, *rest = path.split("/")
        if not first and rest[0] in _SYSTEM_FOLDERS:
            return path
        names = (name if _PUBLIC_NAME.fullmatch(name) else self._numbered(NAME, name) for name in rest)
        return "/".join((first, *names))

    def _anonymous(self, kind: str) -> str:
        self.removed[kind] += 1
        return f"<{kind}>"

    def _home(self) -> str:
        self.removed[HOME] += 1
        return "~"

    def _numbered(self, kind: str, text: str) -> str:
        self.removed[kind] += 1
        key = (kind, text.lower())
        if key not in self._known:
            self._known[key] = f"<{kind} {sum(known == kind for known, _ in self._known) + 1}>"
        return self._known[key]

    def _ip_address(self, text: str, kind: type[IPv4Address] | type[IPv6Address]) -> str:
        """The replacement for text in the form of an address; unchanged if it is none, or not specific to a host."""
        try:
            address = kind(text)
        except AddressValueError:
            return text
        return text if address.is_loopback or address.is_unspecified else self._numbered(ADDRESS, text)


def is_secret_name(name: str) -> bool:
    """Whether a variable with this name may hold a secret: a token, a key, a password."""
    return _SECRET_NAME.search(name) is not None


def without_secrets(text: str) -> str:
    """A text, such as a command line, with every secret replaced; names and paths stay."""
    return _substitute_secrets(text)[0]


def _substitute_secrets(text: str) -> tuple[str, int]:
    """The text with every secret replaced, and their number."""
    total = 0
    for pattern in _SECRETS:
        text, count = pattern.subn(rf"\1<{SECRET}>" if pattern.groups else f"<{SECRET}>", text)
        total += count
    return text, total


def hosts_in(name: str, value: str) -> set[str]:
    """The host names in the value of an environment variable."""
    hosts = {match[2] for match in _URL_HOST.finditer(value)} | {match[1] for match in _HOST_AND_PORT.finditer(value)}
    hosts |= {match[0] for match in _DOMAIN.finditer(value)}
    if _HOST_VARIABLE.search(name) and _HOST_VALUE.fullmatch(value):
        hosts.add(value)
    return {host for host in hosts if re.search("[a-z]", host, re.I) and not _PUBLIC_HOST.fullmatch(host)}


def interfaces_in(name: str, value: str) -> set[str]:
    """The network interfaces and adapters that an environment variable names."""
    return set(re.findall(r"[\w.-]*[a-zA-Z][\w.-]*", value)) if _INTERFACE_VARIABLE.search(name) else set()


def libraries_in(name: str, value: str) -> set[str]:
    """The file names of the libraries that an environment variable loads."""
    return (
        {path.rpartition("/")[2] for path in re.split(r"[:,\s]+", value)} if _LIBRARY_VARIABLE.search(name) else set()
    )


def _words(names: Iterable[str]) -> re.Pattern[str] | None:
    """A pattern for the names as separate words, longest first; None if there are none."""
    specific = {name for name in names if len(name) >= _MIN_NAME and name.lower() not in _GENERIC_NAMES}
    if not specific:
        return None
    listed = "|".join(re.escape(name) for name in sorted(specific, key=len, reverse=True))
    return re.compile(rf"(?<![^\W_])(?:{listed})(?![^\W_])", re.I)
