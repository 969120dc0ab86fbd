# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of this folder and prints PASS, FAIL or SKIP for each, as tests/run.sh counts them.

A test that is skipped where the bindings are required (PKV_REQUIRE_BINDINGS=1) is a failure, unless it is for torch, nodes or a GPU."""

import os
import sys
import unittest

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
allowed = ("torch is not installed", "no nodes here", "no GPU here")
required = os.environ.get("PKV_REQUIRE_BINDINGS") == "1"


class Result(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.bad = 0

    def say(self, word, test, why=""):
        self.bad += word == "FAIL"
        print(word, test.id(), why, flush=True)

    def addSuccess(self, test):
        self.say("PASS", test)

    def addSkip(self, test, reason):
        self.say("FAIL" if required and not reason.startswith(allowed) else "SKIP", test, reason)

    def wrong(self, test, err):
        self.say("FAIL", test)
        print("    " + self._exc_info_to_string(err, test).replace("\n", "\n    "), flush=True)

    def addFailure(self, test, err):
        self.wrong(test, err)

    def addError(self, test, err):
        self.wrong(test, err)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.wrong(subtest, err)


result = Result()
unittest.defaultTestLoader.discover(here, "test_*.py").run(result)
sys.exit(1 if result.bad or not result.testsRun else 0)
