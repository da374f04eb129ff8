# SPDX-License-Identifier: Apache-2.0
"""inspect_library_test.py COMPILER: every kind of fault, planted in a library, is found."""

import os
import subprocess
import sys
import tempfile

INSPECTOR = os.path.join(os.path.dirname(os.path.abspath(__file__)), "inspect_library.py")


def build(compiler, folder, *flags):
    source, library = os.path.join(folder, "small.c"), os.path.join(folder, "libsmall.so")
    with open(source, "w", encoding="utf-8") as file:
        file.write("#include <math.h>\n#include <string.h>\n"
                   "int planted(const char* a) { return (int)pow(strlen(a), 3.5); }\n")
    subprocess.run([compiler, "-shared", "-fPIC", source, "-o", library, "-lm", *flags], check=True)
    return library


def build_archive(compiler, folder, declaration):
    source, archive = os.path.join(folder, "part.cc"), os.path.join(folder, "libpart.a")
    with open(source, "w", encoding="utf-8") as file:
        file.write(f"#include <string>\n{declaration}\n")
    subprocess.run([compiler, "-x", "c++", "-fPIC", "-c", source, "-o", archive], check=True)
    return archive


def listing(folder, *names):
    path = os.path.join(folder, "list")
    with open(path, "w", encoding="utf-8") as file:
        file.write("# a comment\n" + "".join(f"{name}\n" for name in names))
    return path


def expect(status, text, *arguments):
    ran = subprocess.run([sys.executable, INSPECTOR, *arguments], capture_output=True, text=True)
    if ran.returncode != status or text not in ran.stdout:
        sys.exit(f"{arguments}: status {ran.returncode}, wanted {status} with '{text}':\n"
                 f"{ran.stdout}{ran.stderr}")


def main(compiler):
    with tempfile.TemporaryDirectory() as folder:
        kept = ["-Wl,-z,nodelete"]
        library = build(compiler, folder, *kept)
        expect(0, "", "exports", library, listing(folder, "planted", "absent ?"))
        expect(1, "does not list: planted", "exports", library, listing(folder))
        expect(1, "not there: absent", "exports", library, listing(folder, "planted", "absent"))
        expect(0, "", "needed", library, listing(folder, "libm.so.6", "libc.so.6"))
        expect(1, "does not list: libm.so.6", "needed", library, listing(folder, "libc.so.6"))
        expect(0, "", "versions", library, "GLIBC_2.99")
        expect(0, "", "versions", library, f"like:{library}")
        expect(1, "newer than GLIBC_2.1", "versions", library, "GLIBC_2.1", f"like:{library}")
        expect(1, "nothing of GLIBC is allowed", "versions", library, "CXXABI_1.3")
        expect(0, "", "strings", build_archive(compiler, folder, "void planted(const char*) {}"))
        for planted in ("std::string planted() { return {}; }", "void planted(const std::string&) {}"):
            expect(1, "planted", "strings", build_archive(compiler, folder, planted))
        expect(0, "", "hardening", library)
        expect(1, "nodelete", "hardening", build(compiler, folder))
        expect(1, "search path", "hardening", build(compiler, folder, *kept, "-Wl,-rpath,/planted"))
        expect(1, "executable stack", "hardening",
               build(compiler, folder, *kept, "-z", "execstack"))


if __name__ == "__main__":
    main(sys.argv[1])
