"""Record the template as a release: `make release VERSION=0.2.0`.

It writes ddpgen/_history/VERSION.zip and the template's digest into index.json, sets the version in
ddpgen/__init__.py, and moves what CHANGELOG.md lists as unreleased under it. Records are never
changed: every project remembers the release that it was made from.
"""

import datetime
import json
import re
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # this checkout, not a ddpgen that is installed

from ddpgen import store  # noqa: E402
from ddpgen.template import template_dir  # noqa: E402

_VERSION = re.compile(r"\d+\.\d+\.\d+")


def main() -> None:
    """Check the version, then write."""
    version = sys.argv[1].removeprefix("v") if len(sys.argv) == 2 else ""
    if not _VERSION.fullmatch(version):
        sys.exit("say which release: make release VERSION=0.2.0")
    recorded = store.releases()
    if version in recorded:
        sys.exit(f"{version} is recorded, and a record is never changed: choose the next version")
    newest = next(reversed(recorded), None)
    if newest is not None and not _later(version, newest):
        sys.exit(f"{version} is not later than {newest}, the newest release")
    tree = store.read_tree(template_dir())
    digest = store.digest(tree)
    if digest in recorded.values():
        sys.exit(f"the template is the one of {store.current()}: there is nothing to release")
    record(version, tree, digest)
    _set_version(version)
    _move_unreleased(version)
    print(f"recorded {version}; commit ddpgen/_history, ddpgen/__init__.py and CHANGELOG.md")


def _later(version: str, other: str) -> bool:
    return (store.order(f"v{version}") or ()) > (store.order(f"v{other}") or ())


def record(version: str, tree: Mapping[str, bytes], digest: str) -> None:
    """Write one release; the same template gives the same bytes."""
    store.HISTORY.mkdir(exist_ok=True)
    with zipfile.ZipFile(store.HISTORY / f"{version}.zip", "x", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(tree.items()):
            entry = zipfile.ZipInfo(name)  # dated 1980, so that the clock does not matter
            entry.external_attr = int(store.mode(content), 8) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    index = {**store.releases(), version: digest}
    text = json.dumps(index, indent=2) + "\n"
    (store.HISTORY / "index.json").write_text(text, encoding="utf-8")


def _set_version(version: str) -> None:
    file = ROOT / "ddpgen/__init__.py"
    text = file.read_text(encoding="utf-8")
    line = f'__version__ = "{version}"'
    file.write_text(re.sub(r'^__version__ = ".*"$', line, text, flags=re.MULTILINE), "utf-8")


def _move_unreleased(version: str) -> None:
    file = ROOT / "CHANGELOG.md"
    text = file.read_text(encoding="utf-8")
    today = datetime.datetime.now(datetime.UTC).date()
    heading = f"## [Unreleased]\n\n## [{version}] - {today}\n"
    file.write_text(text.replace("## [Unreleased]\n", heading, 1), encoding="utf-8")


if __name__ == "__main__":
    main()
