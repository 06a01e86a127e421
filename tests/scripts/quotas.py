"""A tenant that takes all that there is, and a neighbour; takes lines, and answers each with one.

    quotas.py           qp, mr, cm      makes objects until refused: "qp COUNT ERRNO", and keeps them
                        ports           binds ids of rdma_cm to ports of the kernel's choice, as above
                        bind PORT       binds an id to a port: "ok", or "ERRNO"
                        listen PORT BACKLOG     the same, and listens
                        drop            destroys all that is kept, and closes the device
                        flood           makes and destroys protection domains until the next line
                        spin COUNT      the same, so many times: "p50 MICROSECONDS p99 MICROSECONDS"
    quotas.py DEVICE
"""
import ctypes
import errno
import os
import socket
import struct
import sys
import threading
import time

from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPCap, QPInitAttr

# More than a test needs, where nobody refuses.
MOST = 40
REGION = 64 << 10
RC = 2
LOCAL_WRITE = 1


def code(number):
    return errno.errorcode.get(number, str(number))


class Hoard:
    def __init__(self, device):
        self.device = device
        self.open()

    def open(self):
        self.ctx = Context(name=self.device)
        self.pd, self.cq = PD(self.ctx), CQ(self.ctx, 16)
        self.kept, self.cm = [], []

    def until_refused(self, make):
        for count in range(MOST):
            try:
                self.kept.append(make())
            except PyverbsRDMAError as error:
                return f"{count} {code(error.error_code)}"
            except OSError as error:
                return f"{count} {code(error.errno)}"
        return f"{MOST} not-refused"

    def qp(self):
        cap = QPCap(max_send_wr=2, max_recv_wr=2)
        init = QPInitAttr(qp_type=RC, scq=self.cq, rcq=self.cq, cap=cap)
        return self.until_refused(lambda: QP(self.pd, init))

    def mr(self):
        return self.until_refused(lambda: MR(self.pd, REGION, LOCAL_WRITE))

    def manager(self):
        self.cm.append(os.open("/dev/infiniband/rdma_cm", os.O_RDWR))
        return self.cm[-1]

    def cm_id(self, fd):
        # struct rdma_ucm_create_id: RDMA_USER_CM_CMD_CREATE_ID, RDMA_PS_TCP.
        room = ctypes.create_string_buffer(4)
        body = struct.pack("=QQHBBI", 0, ctypes.addressof(room), 0x0106, 0, 0, 0)
        os.write(fd, struct.pack("=IHH", 0, len(body), 4) + body)
        return struct.unpack("=I", room.raw)[0]

    def cm_ids(self):
        fd = self.manager()
        return self.until_refused(lambda: self.cm_id(fd))

    def bound(self, fd, port):
        # struct rdma_ucm_bind: RDMA_USER_CM_CMD_BIND, a struct sockaddr_in of any address.
        one = self.cm_id(fd)
        address = struct.pack("=H", socket.AF_INET) + struct.pack(">H", port) + bytes(12)
        body = struct.pack("=IHH", one, 16, 0) + address.ljust(128, b"\0")
        os.write(fd, struct.pack("=IHH", 20, len(body), 0) + body)
        return one

    def ports(self):
        fd = self.manager()
        return self.until_refused(lambda: self.bound(fd, 0))

    def bind(self, port, backlog=None):
        fd = self.manager()
        try:
            one = self.bound(fd, port)
            if backlog is not None:
                # struct rdma_ucm_listen: RDMA_USER_CM_CMD_LISTEN.
                os.write(fd, struct.pack("=IHHII", 7, 8, 0, one, backlog))
            return "ok"
        except OSError as error:
            return code(error.errno)

    def drop(self):
        while self.kept:
            one = self.kept.pop()
            if hasattr(one, "close"):
                one.close()
        for fd in self.cm:
            os.close(fd)
        self.cm = []
        self.cq.close()
        self.pd.close()
        self.ctx.close()
        self.open()
        return "dropped"

    def spin(self, count):
        times = []
        for _ in range(count):
            begun = time.monotonic()
            PD(self.ctx).close()
            times.append(time.monotonic() - begun)
        times.sort()
        at = lambda part: round(times[int(len(times) * part)] * 1e6)
        return f"p50 {at(0.5)} p99 {at(0.99)}"


def main(device):
    hoard = Hoard(device)
    made, flooding = 0, threading.Event()

    def flood():
        nonlocal made
        ctx = Context(name=device)
        while flooding.is_set():
            PD(ctx).close()
            made += 1

    thread = begun = None
    print("ready", flush=True)
    for line in sys.stdin:
        word, *rest = line.split()
        if thread:
            flooding.clear()
            thread.join()
            took, thread = time.monotonic() - begun, None
        if word == "flood":
            flooding.set()
            made, begun, thread = 0, time.monotonic(), threading.Thread(target=flood)
            thread.start()
            answer = "flooding"
        elif word == "flooded":
            answer = f"{made} in {took:.1f}"
        elif word == "spin":
            answer = hoard.spin(int(rest[0]))
        elif word in ("bind", "listen"):
            answer = hoard.bind(*map(int, rest))
        else:
            words = {"qp": hoard.qp, "mr": hoard.mr, "cm": hoard.cm_ids, "ports": hoard.ports, "drop": hoard.drop}
            answer = words[word]()
        print(answer, flush=True)


main(sys.argv[1])
