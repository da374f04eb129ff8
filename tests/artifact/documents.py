# SPDX-License-Identifier: Apache-2.0
"""Checks the pages of this repository: every relative link leads somewhere, and README.md stays short.

  documents.py ROOT      prints what is wrong, one line each; exits 1 when there is anything

A link leads somewhere if its file or folder exists inside ROOT, with the same upper and lower case, and if the page it names
has the heading after '#'. Links to other hosts are not followed. Code between backticks holds no links.
"""
import os
import pathlib
import re
import sys
import urllib.parse

README_LINES_MAX = 160
README_COLUMNS_MAX = 120
NOT_OURS = {"build"}  # and everything whose name begins with a dot

FENCE = re.compile(r"^ {0,3}(```+|~~~+)")
CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
INLINE_LINK = re.compile(r"\[[^\[\]]*\]\(\s*<?([^\s()<>]+)>?(?:\s+[\"'][^)]*)?\s*\)")
REFERENCE = re.compile(r"^ {0,3}\[[^\]]+\]:\s*<?([^\s<>]+)>?")
OTHER_HOST = re.compile(r"^([a-z][a-z0-9+.-]*:|//)", re.IGNORECASE)


def pages(root):
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in NOT_OURS and not name.startswith("."))
        yield from (pathlib.Path(folder) / name for name in sorted(files) if name.endswith(".md"))


def lines_outside_code(text):
    """(number, line) of every line that is not in a code block, without the code inside it."""
    fence = None
    for number, line in enumerate(text.splitlines(), 1):
        mark = FENCE.match(line)
        if fence:
            if mark and line.strip() == mark[1] and mark[1].startswith(fence):
                fence = None
        elif mark:
            fence = mark[1]
        else:
            yield number, CODE.sub("", line)


def links(text):
    for number, line in lines_outside_code(text):
        for target in INLINE_LINK.findall(line) + REFERENCE.findall(line):
            if not OTHER_HOST.match(target):
                yield number, target


def anchors(text):
    """What GitHub makes of the headings of a page."""
    seen = {}
    in_code = {number for number, _ in enumerate(text.splitlines(), 1)} - {number for number, _ in lines_outside_code(text)}
    for number, line in enumerate(text.splitlines(), 1):
        heading = re.match(r"#{1,6}\s+(.*?)\s*#*$", line)
        if not heading or number in in_code:
            continue
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        again = seen.get(slug, 0)
        seen[slug] = again + 1
        yield f"{slug}-{again}" if again else slug


def exists_as_spelled(root, path):
    """Like path.exists(), but also on a file system that takes README.md and readme.md for the same."""
    place = root
    for part in path.relative_to(root).parts:
        if part not in os.listdir(place):
            return False
        place = place / part
        if not place.is_dir():
            return place == path
    return True


def what_is_wrong_with(root, page, target):
    """A sentence, or None."""
    file, _, anchor = urllib.parse.unquote(target).partition("#")
    aim = pathlib.Path(os.path.normpath(page.parent / file)) if file else page
    if file.startswith("/") or not aim.is_relative_to(root):
        return f"the link '{target}' leads out of the repository"
    if not exists_as_spelled(root, aim):
        return f"the link '{target}' is dead: there is no {aim.relative_to(root)}"
    if anchor and (aim.suffix != ".md" or anchor not in anchors(aim.read_text(encoding="utf-8"))):
        return f"the link '{target}' is dead: {aim.relative_to(root)} has no heading '{anchor}'"
    return None


def complaints(root):
    root = pathlib.Path(root).resolve()
    for page in pages(root):
        for number, target in links(page.read_text(encoding="utf-8")):
            wrong = what_is_wrong_with(root, page, target)
            if wrong:
                yield f"{page.relative_to(root)}:{number}: {wrong}"
    readme = root / "README.md"
    if not readme.is_file():
        yield "README.md: there is none"
        return
    lines = readme.read_text(encoding="utf-8").splitlines()
    if len(lines) > README_LINES_MAX:
        yield f"README.md: {len(lines)} lines; at most {README_LINES_MAX}. Move details to the page of the folder that they are about"
    for number, line in enumerate(lines, 1):
        if len(line) > README_COLUMNS_MAX:
            yield f"README.md:{number}: {len(line)} columns; at most {README_COLUMNS_MAX}"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    found = list(complaints(sys.argv[1]))
    print("\n".join(found) if found else f"{sum(1 for _ in pages(sys.argv[1]))} pages, no dead link")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
