"""Runs the tests that rdma-core has for EFA on one device, and says what became of each.

    efa_tests.py DEVICE
"""

import sys
import unittest

sys.path[:0] = ["/opt/pyverbs", "/opt/pyverbs/tests"]
from args_parser import parser

device = sys.argv[1]
sys.argv[1:] = ["--dev", device, "--gid", "0"]
parser.parse_args()


class Said(unittest.TextTestResult):
    def addSuccess(self, test):
        print(test.id(), "ok")

    def addSkip(self, test, reason):
        print(test.id(), "skipped:", reason)

    def addFailure(self, test, err):
        print(test.id(), "failed:", str(err[1]).splitlines()[-1:])

    addError = addFailure


names = ["tests.test_efadv", "tests.test_efa_srd"]
suite = unittest.defaultTestLoader.loadTestsFromNames(names)
unittest.TextTestRunner(resultclass=Said, stream=sys.stderr, verbosity=0).run(suite)
