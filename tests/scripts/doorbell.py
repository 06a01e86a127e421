"""Opens a device and has pages of it mapped; at each signal, says what the pages do and what a request comes to.

    doorbell.py DEVICE

Says "ready", and from then on at each SIGUSR1: of the pages of the device that are mapped, what a load gives
and a load after a store; then how a request ends; then "looked".
"""

import ctypes
import os
import signal
import sys

from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPCap, QPInitAttr

# libibverbs's numbers, which pyverbs has by names of its own: other ones since rdma-core 57.
QPT_RC, QPT_UD = 2, 4


def say(*words, **how):
    print(*words, flush=True, **how)


def pages():
    """The device's: whether the program may write there, and the address. In a sandbox the name is that of a
    mount without a place."""
    found = []
    for line in open("/proc/self/maps"):
        addresses, access, _, _, _, *name = line.split()
        if access.endswith("s") and name and (name[0] == "/" or "uverbs" in name[0]):
            found.append(("w" in access, int(addresses.split("-")[0], 16)))
    return found


def look(context):
    """How many pages there are of a kind depends on what a profile grants."""
    seen = set()
    for writes, address in pages():
        word = ctypes.c_uint32.from_address(address)
        if not writes:
            # Clocks.
            seen.add(f"page to read: loads {type(word.value).__name__}")
            continue
        before = word.value
        # Of no queue: what is rung by it is none of anybody's.
        word.value = 0
        seen.add(f"page to write: loads {before}, after a store {word.value}")
    say(*sorted(seen), sep="\n")
    try:
        PD(context).close()
        say("a request: executed")
    except PyverbsRDMAError as error:
        say("a request:", os.strerror(error.error_code))
    say("looked")


def main(name):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    context = Context(name=name)
    domain = PD(context)
    queue = CQ(context, 16)
    # EFA has no reliable connections; it maps its doorbells with a queue pair alone.
    kind = QPT_UD if name.startswith("efa") else QPT_RC
    caps = QPCap(max_send_wr=8, max_recv_wr=8)
    pair = QP(domain, QPInitAttr(qp_type=kind, scq=queue, rcq=queue, cap=caps))
    if not pages():
        sys.exit("no page of the device is mapped")
    say("ready")
    while True:
        signal.sigwait([signal.SIGUSR1])
        look(context)


main(*sys.argv[1:])
