# SPDX-License-Identifier: Apache-2.0
"""Makes the GPU the default device of every torch program that is run with this folder in PYTHONPATH, children included."""
import importlib.abc
import importlib.util
import os
import sys


class _AfterTorch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        load = spec.loader.exec_module

        def load_and_set(module):
            load(module)
            module.set_default_device(os.environ.get("GPU_CHECK_DEVICE", "cuda"))
        spec.loader.exec_module = load_and_set
        return spec


sys.meta_path.insert(0, _AfterTorch())
