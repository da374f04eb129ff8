# SPDX-License-Identifier: Apache-2.0
"""Rows of a fleet as OTLP logs, written by hand from the published protocol: a second opinion on daemon/fleet/otlp_logs.cc."""

DAEMON = "0f8fad5b-d9cb-469f-a165-70867728950e"
RUN, FINDINGS, STEP, INCIDENT = 1, 2, 3, 4
NOW_NS = 1_764_203_000_000_000_000


def varint(number):
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out + bytes([number]))


def number(field, value):
    return varint(field << 3) + varint(value)


def fixed(field, value):
    return varint(field << 3 | 1) + value.to_bytes(8, "little")


def piece(field, content):
    content = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(content)) + content


def attribute(key, value):
    return piece(1, key) + piece(2, number(3, value) if isinstance(value, int) else piece(1, value))


def step(sequence, body=None, kind=STEP, job="train", run="00000000000000ab", rank=0, at_ns=NOW_NS):
    """A record; the body of a step is a StepSummary with its index."""
    body = number(1, sequence) if body is None else body
    return (fixed(1, at_ns) + piece(5, piece(7, body)) +
            b"".join(piece(6, attribute(*pair)) for pair in (("nanwatch.sequence", sequence), ("nanwatch.kind", kind), ("nanwatch.job", job),
                                                             ("nanwatch.run", run), ("nanwatch.rank", rank))))


def run(sequence, world_size=2, ended=False, name="00000000000000ab", **fields):
    """A record with a run's state: RunFacts of a Run with a rank, a host and a size, and a RunState."""
    identity = piece(3, "host7") + number(11, fields.get("rank", 0)) + number(13, world_size)
    return step(sequence, piece(1, identity) + piece(2, number(17, ended)), RUN, run=name, **fields)


def held(sequence, run_of_state="", daemon=DAEMON, at_ns=NOW_NS):
    """The header that names a row that a sender was told is there (daemon/fleet/held_row.h)."""
    return {"nanwatch-held-row": " ".join(filter(None, (daemon, str(sequence), str(at_ns), run_of_state)))}


def request(records, daemon=DAEMON):
    return piece(1, piece(1, piece(1, attribute("nanwatch.daemon", daemon))) + piece(2, b"".join(piece(2, record) for record in records)))
