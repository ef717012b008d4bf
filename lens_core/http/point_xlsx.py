"""Points as an Excel workbook, written row by row: SpreadsheetML in a zip (ECMA-376, the parts that a reader needs).

A sheet has at most 1,048,576 rows, so that long answers go on in the next one. What Excel has no number for is a text.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from xml.sax.saxutils import escape

from ..model.queries import PointColumns
from .point_text import special_name

XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
SHEET_ROWS = 1_048_576
COLUMNS = ("metric_name", "value", "time", "timestamp", "iteration", "data_source", "run_id", "attempt")
_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_TYPES = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_DAY_MS = 86_400_000
_EPOCH_DAYS = 25_569  # from Excel's day 0 to 1970-01-01
_LARGEST_WHOLE = 10**15  # numbers of Excel have fifteen digits
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


class Workbook:
    """Takes pieces; `sheets` are there after the last."""

    def __init__(self, archive: zipfile.ZipFile, sheet_rows: int = SHEET_ROWS) -> None:
        self._archive = archive
        self._most = sheet_rows
        self._sheet: IO[bytes] | None = None
        self._rows = 0
        self._sheets = 0

    def write_piece(self, piece: PointColumns) -> None:
        """Write the rows of a piece."""
        before = _escape_text(piece.metric_name)
        after = f"{_escape_text(piece.data_source)}{_escape_text(piece.run_id)}{_format_integer(piece.attempt)}"
        lines: list[str] = []
        for value, time, iteration in zip(piece.values, piece.timestamps, piece.iterations, strict=True):
            if self._sheet is None or self._rows + len(lines) >= self._most:
                self._write_lines(lines)
                lines = []
                self._next_sheet()
            lines.append(
                f"<row>{before}{_format_value(value)}{_format_time(time)}{_format_integer(time)}{_format_integer(iteration)}{after}</row>"
            )
        self._write_lines(lines)

    def close(self) -> None:
        """End the last sheet and write what holds the sheets together."""
        if self._sheet is None:
            self._next_sheet()
        self._end_sheet()
        for name, text in _parts(self._sheets).items():
            self._archive.writestr(name, _HEAD + text)

    def _write_lines(self, lines: list[str]) -> None:
        if lines and self._sheet is not None:
            self._sheet.write("".join(lines).encode())
            self._rows += len(lines)

    def _next_sheet(self) -> None:
        self._end_sheet()
        self._sheets += 1
        self._sheet = self._archive.open(f"xl/worksheets/sheet{self._sheets}.xml", "w", force_zip64=True)
        self._sheet.write(f'{_HEAD}<worksheet xmlns="{_MAIN}"><sheetData>'.encode())
        self._rows = 0
        self._write_lines([f"<row>{''.join(map(_escape_text, COLUMNS))}</row>"])

    def _end_sheet(self) -> None:
        if self._sheet is not None:
            self._sheet.write(b"</sheetData></worksheet>")
            self._sheet.close()


@contextmanager
def workbook(path: Path, sheet_rows: int = SHEET_ROWS) -> Iterator[Workbook]:
    """A workbook in a new file; it is whole when the context ends without an error."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        book = Workbook(archive, sheet_rows)
        yield book
        book.close()


def _escape_text(text: str) -> str:
    kept = escape(_FORBIDDEN.sub("\ufffd", text[:32_767]))
    return f'<c t="inlineStr"><is><t xml:space="preserve">{kept}</t></is></c>'


def _format_integer(number: int) -> str:
    return f"<c><v>{number}</v></c>" if abs(number) < _LARGEST_WHOLE else _escape_text(str(number))


def _format_value(value: float) -> str:
    return f"<c><v>{value!r}</v></c>" if value - value == 0 else _escape_text(special_name(value))


def _format_time(time_ms: int) -> str:
    days = time_ms / _DAY_MS + _EPOCH_DAYS
    return f'<c s="1"><v>{days!r}</v></c>' if 61 <= days < 2_958_466 else _escape_text("")


def _parts(sheets: int) -> dict[str, str]:
    """The other files of the package."""
    numbers = range(1, sheets + 1)
    overrides = "".join(
        f'<Override PartName="/xl/worksheets/sheet{n}.xml" ContentType="{_TYPES}.worksheet+xml"/>' for n in numbers
    )
    relations = "".join(
        f'<Relationship Id="rId{n}" Type="{_RELATIONS}/worksheet" Target="worksheets/sheet{n}.xml"/>' for n in numbers
    )
    listed = "".join(f'<sheet name="points {n}" sheetId="{n}" r:id="rId{n}"/>' for n in numbers)
    return {
        "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{_TYPES}.sheet.main+xml"/>'
        f'<Override PartName="/xl/styles.xml" ContentType="{_TYPES}.styles+xml"/>{overrides}</Types>',
        "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">'
        f'<Relationship Id="rId1" Type="{_RELATIONS}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_RELATIONS}"><sheets>{listed}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">{relations}'
        f'<Relationship Id="rId{sheets + 1}" Type="{_RELATIONS}/styles" Target="styles.xml"/></Relationships>',
        "xl/styles.xml": f'<styleSheet xmlns="{_MAIN}">'
        '<numFmts count="1"><numFmt numFmtId="164" formatCode="yyyy\\-mm\\-dd hh:mm:ss.000"/></numFmts>'
        '<fonts count="1"><font><sz val="11"/><name val="Calibri"/></font></fonts>'
        '<fills count="2"><fill><patternFill patternType="none"/></fill>'
        '<fill><patternFill patternType="gray125"/></fill></fills>'
        '<borders count="1"><border><left/><right/><top/><bottom/><diagonal/></border></borders>'
        '<cellStyleXfs count="1"><xf/></cellStyleXfs>'
        '<cellXfs count="2"><xf xfId="0"/><xf numFmtId="164" xfId="0" applyNumberFormat="1"/></cellXfs>'
        '<cellStyles count="1"><cellStyle name="Normal" xfId="0" builtinId="0"/></cellStyles></styleSheet>',
    }
