# SPDX-License-Identifier: Apache-2.0
"""Results of several calls as one, the archive of what was wrong, and the description of a machine whose GPU ails."""
import json
import pathlib
import random
import subprocess
import sys
import tarfile
import tempfile
import unittest
from unittest import mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import clocks  # noqa: E402
import evidence  # noqa: E402
import machine  # noqa: E402
import result  # noqa: E402


def document(taken, gpu="NVIDIA H200", **states):
    """With one answer for each of `states`; its value is when it was taken."""
    answers = [{"id": name, "asks": "?", "state": state, "call": 0} | ({"answer": taken, "met": None} if state == "answered" else {"why": taken})
               for name, state in states.items()]
    return {"schema": result.SCHEMA, "machine": {"gpu": gpu}, "calls": [{"taken": taken, "commit": "c", "parts": []}], "answers": answers}


class Results(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_calls_become_one_result_that_keeps_what_was_answered(self):
        first = document("2026-01-01T00:00:00Z", steps="answered", verdicts="not asked", kernels="failed", sums="answered")
        second = document("2026-01-02T00:00:00Z", steps="not asked", verdicts="answered", kernels="not asked", sums="answered", build="answered")
        one = result.merged([second, first])
        self.assertEqual({a["id"]: (a["state"], a.get("answer", a.get("why")), a["call"]) for a in one["answers"]}, {
            "steps": ("answered", "2026-01-01T00:00:00Z", 0), "verdicts": ("answered", "2026-01-02T00:00:00Z", 1),
            "kernels": ("failed", "2026-01-01T00:00:00Z", 0), "sums": ("answered", "2026-01-02T00:00:00Z", 1),
            "build": ("answered", "2026-01-02T00:00:00Z", 1)})
        self.assertEqual([call["taken"] for call in one["calls"]], ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"])

    def test_an_answer_that_was_cut_off_gives_way_to_a_whole_one_and_to_no_failure(self):
        cut, whole, failed = (document(f"2026-01-0{day}T00:00:00Z", steps=state) for day, state in ((2, "answered"), (1, "answered"), (3, "failed")))
        cut["answers"][0]["provisional"] = True
        self.assertEqual(result.merged([cut, whole])["answers"][0]["answer"], "2026-01-01T00:00:00Z")
        self.assertEqual(result.merged([cut, failed])["answers"][0]["answer"], "2026-01-02T00:00:00Z")

    def test_one_result_is_written_by_the_command(self):
        for day in (1, 2):
            (self.folder / f"{day}.json").write_text(json.dumps(document(f"2026-01-0{day}T00:00:00Z", steps="answered")))
        subprocess.run([sys.executable, HERE / "merge.py", self.folder / "out", self.folder / "1.json", self.folder / "2.json"], check=True,
                       capture_output=True)
        self.assertEqual(sorted(path.name for path in (self.folder / "out").iterdir()),
                         ["nvidia-h200-20260101T000000Z.json", "nvidia-h200-20260101T000000Z.txt"])

    def test_the_commit_is_that_of_the_parts_and_of_this_tree_where_it_differs(self):
        for here, packed, told in (("a-dirty", "b", "b (the parts), a-dirty (this tree)"), ("a", "a", "a"), ("a", None, "a"), ("", "b", "b"), ("", None, "")):
            (self.folder / "commit").unlink(missing_ok=True)
            if packed:
                (self.folder / "commit").write_text(packed + "\n")
            with mock.patch.object(result, "first_line", return_value=here):
                self.assertEqual(result.commit_of(self.folder), told)

    def test_different_gpus_are_not_mixed(self):
        with self.assertRaisesRegex(ValueError, "different GPUs: A, B"):
            result.merged([document("1", "A", steps="answered"), document("2", "B", steps="answered")])

    def test_evidence_has_logs_and_what_was_kept_and_is_small_enough(self):
        work = self.folder / "work"
        (work / "evidence/corpus-full").mkdir(parents=True)
        noise = random.Random(1).randbytes(100 << 10)
        (work / "steps.log").write_bytes(noise + b"the end")
        (work / "evidence/corpus-full/c001.json").write_text("{}")
        evidence.write(work, self.folder / "out/evidence.tar.gz")
        evidence.write(work, self.folder / "out/small.tar.gz", bytes_max=20 << 10)
        self.assertGreater((self.folder / "out/evidence.tar.gz").stat().st_size, 100 << 10)
        self.assertLess((self.folder / "out/small.tar.gz").stat().st_size, 20 << 10)
        for name in ("evidence", "small"):
            with tarfile.open(self.folder / f"out/{name}.tar.gz") as archive:
                self.assertEqual(sorted(archive.getnames()), ["evidence/evidence/corpus-full/c001.json", "evidence/steps.log"])
                self.assertTrue(archive.extractfile("evidence/steps.log").read().endswith(b"the end"))

    def test_a_gpu_that_fails_is_described_without_it(self):
        with mock.patch.object(machine, "by_torch", side_effect=RuntimeError("CUDA error: unspecified launch failure")), \
                mock.patch.object(sys, "argv", ["machine.py", str(self.folder / "machine.json")]):
            machine.main()
        described = json.loads((self.folder / "machine.json").read_text())
        self.assertIn("unspecified launch failure", described["torch_could_not_say"])
        self.assertGreater(described["cores"], 0)

    def test_the_clock_is_what_the_driver_says_or_nvidia_smi_or_unknown(self):
        def told(_handle, _domain, clock):
            clock._obj.value = 1755
            return 0
        with mock.patch.object(clocks, "nvml", return_value=(mock.Mock(nvmlDeviceGetClockInfo=told), None)):
            self.assertEqual(clocks.sm_clock_mhz(), 1755)
        without = mock.patch.object(clocks, "nvml", return_value=None)
        without.start()
        self.addCleanup(without.stop)
        with mock.patch.object(subprocess, "run", return_value=mock.Mock(stdout="1980\n")):
            self.assertEqual(clocks.sm_clock_mhz(), 1980)
        for trouble in (FileNotFoundError(), subprocess.TimeoutExpired("nvidia-smi", 10)):
            with mock.patch.object(subprocess, "run", side_effect=trouble):
                self.assertIsNone(clocks.sm_clock_mhz())


if __name__ == "__main__":
    unittest.main(verbosity=2)
