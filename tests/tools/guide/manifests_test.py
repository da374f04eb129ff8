#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The manifests of the guide against the schemas of Kubernetes: `manifests_test.py FOLDER`."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

import kubernetes_validate
import yaml


class Manifests(unittest.TestCase):
    def test_each_is_one_that_kubernetes_takes(self):
        manifests = sorted(FOLDER.glob("*.yaml"))
        self.assertGreater(len(manifests), 0)
        for path in manifests:
            for document in yaml.safe_load_all(path.read_text()):
                for version in ("1.29", "1.31", "1.33"):
                    kubernetes_validate.validate(document, version, strict=True)

    def test_a_field_that_does_not_exist_would_be_found(self):
        document = next(yaml.safe_load_all((FOLDER / "job.yaml").read_text()))
        document["spec"]["template"]["spec"]["restartPolicies"] = "Never"
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(document, "1.31", strict=True)

    def test_what_is_mounted_is_a_volume_and_state_is_shared(self):
        pod = next(yaml.safe_load_all((FOLDER / "job.yaml").read_text()))["spec"]["template"]["spec"]
        containers = {container["name"]: container for container in pod["initContainers"] + pod["containers"]}
        volumes = {volume["name"] for volume in pod["volumes"]}
        for name, container in containers.items():
            self.assertLessEqual({mount["name"] for mount in container["volumeMounts"]}, volumes, name)
        environments = [{entry["name"]: entry["value"] for entry in containers[name]["env"]} for name in ("train", "pages")]
        self.assertEqual(environments[0], environments[1])

    def test_the_copy_on_a_node_is_replaced_whole(self):
        pod = next(yaml.safe_load_all((FOLDER / "daemonset.yaml").read_text()))["spec"]["template"]["spec"]
        shell, option, script = pod["initContainers"][0]["command"]
        with tempfile.TemporaryDirectory() as folder:
            image, host = pathlib.Path(folder, "nanwatch"), pathlib.Path(folder, "host")
            image.mkdir()
            host.mkdir()
            script = script.replace("/host/", f"{host}/").replace(" /nanwatch ", f" {image} ")
            for version in ("1", "2", "3"):
                (image / "version").write_text(version)
                (image / f"only-in-{version}").touch()
                subprocess.run([shell, option, script], check=True)
                self.assertEqual((host / "nanwatch/version").read_text(), version)
                self.assertEqual({path.name for path in (host / "nanwatch").iterdir()}, {"version", f"only-in-{version}"})
                (image / f"only-in-{version}").unlink()
            self.assertEqual((host / "nanwatch.old/version").read_text(), "2")


if __name__ == "__main__":
    FOLDER = pathlib.Path(sys.argv[1])
    unittest.main(argv=sys.argv[:1])
