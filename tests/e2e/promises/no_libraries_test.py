# SPDX-License-Identifier: Apache-2.0
"""Promise: we bring no library into the job but our own two, and those are never unmapped."""
import re
import unittest

from watched_job import PromiseTest

PROGRAM = """
import ctypes, os, _ctypes
import torch

def mapped():
    with open("/proc/self/maps") as maps:
        return sorted({line.split()[5] for line in maps if len(line.split()) > 5 and ".so" in line})

model = torch.nn.Linear(4, 1)
model(torch.ones(2, 4)).sum().backward()
observers = [path for path in mapped() if "libnanwatch_observer" in path]
for path in observers:
    handle = ctypes.CDLL(path)._handle
    for _ in range(3):  # More often than it was opened: the observer's own count goes too.
        _ctypes.dlclose(handle)
torch.log(model(torch.ones(2, 4)) * 0 - 1).sum().backward()
print("closed", len(observers))
print("\\n".join(mapped()))
"""
FORBIDDEN = re.compile(r"protobuf|protoc|spdlog|libfmt|boost|sqlite|absl|hwy", re.IGNORECASE)


class Libraries(PromiseTest):
    @classmethod
    def start(cls, workplace):
        command = workplace.program("maps", PROGRAM)
        cls.bare, cls.watched = workplace.run_bare(command), workplace.run_watched(command)

    def mapped(self, job):
        self.assertEqual(job.status(), 0, job.stderr())
        return set(job.stdout().splitlines()[1:])

    def test_none_is_mapped_that_is_not_without_us_but_our_two(self):
        brought = {path.rsplit("/", 1)[-1] for path in self.mapped(self.watched) - self.mapped(self.bare)}
        self.assertEqual({name for name in brought if FORBIDDEN.search(name)}, set())
        self.assertEqual(sorted(re.sub(r"-[0-9.]+\.so$", ".so", name) for name in brought),
                         ["libnanwatch.so", "libnanwatch_observer.so"])

    def test_closing_the_observer_does_not_unmap_it_and_it_goes_on_finding(self):
        self.assertEqual(self.watched.status(), 0, self.watched.stderr())
        self.assertEqual(self.watched.stdout().splitlines()[0], "closed 1")
        self.assertTrue(any("libnanwatch_observer" in path for path in self.mapped(self.watched)))
        self.assertIn("aten::log", [incident["origin"]["op"] for incident in self.watched.verdict()["incidents"]])


if __name__ == "__main__":
    unittest.main(verbosity=2)
