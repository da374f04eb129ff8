# SPDX-License-Identifier: Apache-2.0
"""A test with a PostgreSQL of its own, in which the fleet's tables are made."""
import pathlib
import tempfile
import unittest

from cluster import MISSING, Cluster


@unittest.skipIf(MISSING, MISSING)
class FleetCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.cluster = Cluster()
        cls.addClassCleanup(cls.cluster.close)
        cls.made = cls.cluster.make_fleet()

    def empty_tables(self):
        self.cluster.sql("TRUNCATE nanwatch.fact, nanwatch.run")
