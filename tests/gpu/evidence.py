# SPDX-License-Identifier: Apache-2.0
"""One archive of all logs and of what was kept about wrong programs, small enough to come back from anywhere."""
import io
import tarfile

BYTES_MAX = 15 << 20  # what may come back of one file is 16 MiB
ENDS = (256 << 10, 64 << 10, 8 << 10)  # bytes kept of each file's end; the next, where the archive is too large


def files_of(work):
    return sorted(path for pattern in ("*.log", "*.tsv", "*.json", "*.jsonl", "evidence/**/*") for path in work.glob(pattern) if path.is_file())


def packed(work, end):
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as archive:
        for path in files_of(work):
            content = path.read_bytes()[-end:]
            entry = tarfile.TarInfo(f"evidence/{path.relative_to(work)}")
            entry.size, entry.mtime = len(content), int(path.stat().st_mtime)
            archive.addfile(entry, io.BytesIO(content))
    return held.getvalue()


def write(work, path, bytes_max=BYTES_MAX):
    for end in ENDS:
        content = packed(work, end)
        if len(content) <= bytes_max:
            break
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    new.write_bytes(content)
    new.replace(path)
