"""Declarations of log lines by detectors: formats of steps, patterns of events, marks that show a framework.

Everything here is data. The engine (`engine.py`) is built once from what all installed detectors declare; a line is
shown only to those whose `words` all stand on it. A word is a run of letters and underscores, in lower case:
`[INFO] step=10, SamplesPerSec=3` has the words info, step, samplespersec.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

Layout = Literal["groups", "pipes", "commas", "spaced", "loose", "dashes", "tabs", "boxes", "mapping", "bar"]
Kind = Literal["number", "rounded", "time", "memory", "compute", "percent", "text"]


class Field(msgspec.Struct, frozen=True):
    """The meaning of a printed value: the name under which it is stored, and how it is read.

    `names` is one stored name, or several where one value holds several parts (`a/b/c/d%`). An `X/Y` or `X (Y)` value
    of a single name gives X as the name and Y as `<name>_avg`. `factor` makes the stored unit of the printed one where
    no unit comes after the number. Kinds: `number`; `rounded` (a printed 0.000 says nothing); `time` (stored in ms);
    `memory` (stored in GB); `compute` (TFLOP/s); `percent` (a fraction becomes a percentage); `text` (not stored).
    """

    names: str | tuple[str, ...]
    kind: Kind = "number"
    factor: float = 1.0


class LogFormat(msgspec.Struct, frozen=True, kw_only=True):
    """One way in which a framework prints a step.

    `head` is a regular expression that is searched; its groups are stored names. What comes after it (and, for
    `pipes`, before it) is read by `layout`:

    - `groups`: nothing but the groups of the head;
    - `pipes`, `commas`, `spaced`, `dashes`: `key: value` or `key=value`, separated by `|`, `, `, blanks or ` - `;
    - `tabs`: `key: value`, separated by tabs or several blanks, so that a key may hold a blank;
    - `boxes`: `│ key │ value │ key │ value │`, the rows of a drawn table;
    - `loose`: `key value`, `key: value`, `key=value` between whatever people put there;
    - `mapping`: a Python or JSON dictionary that begins in the head;
    - `bar`: the postfix of a progress bar, `[05:12<01:00, 2.5it/s, key=value]`.

    `fields` adds to the shared vocabulary or overrides it; a number under a key that nobody knows is stored under its
    printed name. `loss` names the keys that may be the headline loss, best first; `headlines` has further stored
    names of this sort, each with the keys that may be it (`{"reward": ("ep_rew_mean", "reward")}`, since API 1.3).
    `needs`: at least one of these must have come out. `reject` and `require` are searched in the whole line: the one
    must not be found, the other must. `standalone`: no ordinary word stands right before the head (`validation loss
    at iteration 7`). `epoch_base` is the number of the first epoch where steps are counted per epoch.
    `time_limit_seconds` above 0 marks a head that somebody wrote in a configuration: it is tried before all others.
    Every pattern of every detector has a time limit: see docs/write_a_detector.md.
    `joins`: the line names no step; its numbers belong to the next or the previous step of its stream, or its epoch to
    all steps below it that count within one and name none (`epoch`), or the next step of its stream is none, but one
    from before that is printed once more (`repeats`); `beside` (since API 1.3) is as `previous`, but nothing where no
    step stands above it. `sums_up_epoch`: it is a step, that of its epoch, only where its stream prints no others.
    `is_alone`: a banner, beside which nothing but prefixes stands on its line; lines that hold more words are not even
    looked at. `unlabelled` false leaves out keys that nobody knows.
    `confidence` is how sure such a line makes the framework.
    """

    name: str
    words: Sequence[str]
    head: str
    layout: Layout = "groups"
    fields: Mapping[str, Field] = {}
    loss: Sequence[str] = ("loss",)
    headlines: Mapping[str, Sequence[str]] = {}
    needs: Sequence[str] = ()
    reject: str = ""
    require: str = ""
    standalone: bool = True
    epoch_base: int = 0
    unlabelled: bool = True
    joins: Literal["", "next", "previous", "beside", "epoch", "repeats"] = ""
    sums_up_epoch: bool = False
    is_alone: bool = False
    confidence: float = 0.6
    time_limit_seconds: float = 0.0
    example: str = ""


class EventPattern(msgspec.Struct, frozen=True, kw_only=True):
    """A line that says that something happened. `type` is one of the contract's event types.

    Groups of `pattern` become details; `iteration` and `attempt` are numbers, `path` and `reason` texts, others numbers
    where they can be read as one. Where `names_framework` is false the line may come from anybody. With `only_running`
    the line counts only after steps of a job that no other line has ended: it sums up an end. With `only_idle` it
    counts only while no steps go on: a loop may print it for each epoch.
    """

    type: str
    words: Sequence[str]
    pattern: str
    names_framework: bool = True
    confidence: float = 0.5
    example: str = ""
    only_running: bool = False
    only_idle: bool = False


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """Something on a line that shows the framework, whatever else the line says.

    `refines` names frameworks whose formats this one shares: a step in such a format that carries the mark is ours.
    """

    words: Sequence[str]
    pattern: str
    refines: Sequence[str] = ()
    confidence: float = 0.7


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Rows below a header: without labels under the names of the columns, or `labelled`, each with its own names.

    `header` and `row` are regular expressions; `separator` splits both (None: blanks; `"  "`: two blanks or more); the
    row needs as many cells as the header has names unless `loose`. Columns go through `fields` and the vocabulary as in
    a LogFormat; `sums_up_epoch` is that of a LogFormat, too.

    `labelled` (since API 1.3): `header` is any line that only stands at the head of such a table, and each row has a
    name and a value, or several pairs of them: `|    loss    | 0.25 |`. All rows of one table are one step: that of the
    row whose name means `iteration`, by `fields` or by the vocabulary. A name that comes again begins another table.

    `by_rank` (since API 1.3): the header is the name of one figure (group `name`) alone, and each row has the `value`
    of one `rank`. They belong to the step above, as `NAME/rank_RANK`; those of ranks from 512 on are left out.
    """

    name: str
    words: Sequence[str]
    header: str
    row: str
    separator: str | None = None
    loose: bool = False
    labelled: bool = False
    by_rank: bool = False
    fields: Mapping[str, Field] = {}
    loss: Sequence[str] = ("loss",)
    headlines: Mapping[str, Sequence[str]] = {}
    needs: Sequence[str] = ()
    epoch_base: int = 0
    confidence: float = 0.6
    sums_up_epoch: bool = False
