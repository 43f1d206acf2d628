"""Small documents for tests, as word processors write them."""

import io
import zipfile
from collections.abc import Mapping

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
A = "http://schemas.openxmlformats.org/drawingml/2006/main"
P = "http://schemas.openxmlformats.org/presentationml/2006/main"
MC = "http://schemas.openxmlformats.org/markup-compatibility/2006"
R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
OPEN = "urn:oasis:names:tc:opendocument:xmlns"
HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\r\n'
TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


def pack(parts: Mapping[str, str | bytes]) -> bytes:
    """Return a zip archive of files, uncompressed where they must be."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            stored = name == "mimetype" or isinstance(content, bytes)
            info = zipfile.ZipInfo(name, (1999, 12, 31, 23, 59, 58))  # not now, so that the same is the same
            archive.writestr(info, content, zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED)
    return made.getvalue()


def unpack(content: bytes) -> dict[str, bytes]:
    """Return the files of a zip archive."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def word(body: str) -> str:
    """Return the main file of a .docx with these paragraphs."""
    return f'{HEAD}<w:document xmlns:w="{W}" xmlns:r="{R}" xmlns:mc="{MC}"><w:body>{body}</w:body></w:document>'


def run(text: str, style: str = "") -> str:
    """Return a run of text in Word."""
    return f'<w:r>{style and f"<w:rPr>{style}</w:rPr>"}<w:t xml:space="preserve">{text}</w:t></w:r>'


def make_docx(body: str, **more: str | bytes) -> bytes:
    """Return a .docx that programs open; names of further files have _ for the dot of their endings."""
    relations = "http://schemas.openxmlformats.org/package/2006/relationships"
    types = "http://schemas.openxmlformats.org/package/2006/content-types"
    return pack(
        {
            "[Content_Types].xml": f'{HEAD}<Types xmlns="{types}"><Default Extension="rels" ContentType="application/'
            'vnd.openxmlformats-package.relationships+xml"/><Default Extension="png" ContentType="image/png"/><Default '
            'Extension="xml" ContentType="application/xml"/>'
            f'<Override PartName="/word/document.xml" ContentType="{TYPE}"/></Types>',
            "_rels/.rels": f'{HEAD}<Relationships xmlns="{relations}"><Relationship Id="rId1" '
            f'Type="{R}/officeDocument" Target="word/document.xml"/></Relationships>',
            "word/document.xml": word(body),
            "word/media/image1.png": PICTURE,
        }
        | {f"word/{name.replace('_', '.')}": content for name, content in more.items()}
    )


def open_document(body: str, kind: str = "text") -> str:
    """Return the main file of an .odt or .odp."""
    spaces = " ".join(f'xmlns:{name}="{OPEN}:{name}:1.0"' for name in ("office", "text", "draw", "table"))
    return (
        f"{HEAD}<office:document-content {spaces}><office:body><office:{kind}>{body}</office:{kind}></office:body>"
        "</office:document-content>"
    )


def make_open(body: str, kind: str = "text", **more: str | bytes) -> bytes:
    """Return an .odt, or an .odp with another `kind`."""
    own = {"mimetype": f"application/vnd.oasis.opendocument.{kind}", "content.xml": open_document(body, kind)}
    return pack(own | {name.replace("_", "."): content for name, content in more.items()} | {"Pictures/a.png": PICTURE})


def make_pptx(*paragraphs: str) -> bytes:
    """Return a .pptx with a slide."""
    body = "".join(paragraphs)
    slide = f'{HEAD}<p:sld xmlns:p="{P}" xmlns:a="{A}"><p:txBody><a:bodyPr/>{body}</p:txBody></p:sld>'
    return pack({"ppt/presentation.xml": f'<p:presentation xmlns:p="{P}"/>', "ppt/slides/slide1.xml": slide})


def make_epub(body: str) -> bytes:
    """Return an .epub with a chapter."""
    chapter = f'{HEAD}<html xmlns="http://www.w3.org/1999/xhtml"><body>{body}</body></html>'
    return pack({"mimetype": "application/epub+zip", "OEBPS/one.xhtml": chapter, "OEBPS/a.png": PICTURE})
