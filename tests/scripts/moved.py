"""Moves data between two queue pairs of a device, out of and into memory of several kinds, and compares it.

    moved.py DEVICE [GID_INDEX]

Datagrams on EFA, else reliable connections: by LIDs, or by the GID of an index.
"""

import ctypes
import fcntl
import mmap
import os
import signal
import struct
import sys
import time

from pyverbs.addr import AH, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR, DmaBufMR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

# libibverbs's numbers, which pyverbs has by names of its own: other ones since rdma-core 57.
QPT_RC, QPT_UD, MTU_1024, WR_SEND, WC_SUCCESS, LOCAL_WRITE = 2, 4, 3, 2, 0, 1
MIB = 1 << 20
# What a datagram holds, everywhere.
LENGTH = 1024
# Of a datagram, what comes before the data.
GRH = 40
QKEY = 0x11111111
ACCESS = LOCAL_WRITE
UDMABUF_CREATE = 0x40187542
F_ADD_SEALS, F_SEAL_SHRINK, MFD_ALLOW_SEALING = 1033, 2, 2
MAP_HUGETLB = 0x40000
# How often a wait looks before it gives up.
LOOKS = 100_000

libc = ctypes.CDLL(None, use_errno=True)


class Region:
    """Registered memory: what the device calls it, and what the program sees."""

    def __init__(self, region, address, memory):
        self.region, self.address, self.memory = region, address, memory


def address_of(memory):
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def private(pd, flags=0, length=MIB):
    memory = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | flags)
    address = address_of(memory)
    return Region(MR(pd, length, ACCESS, address=address), address, memory)


def huge(pd):
    with open("/proc/sys/vm/nr_hugepages", "w") as file:
        file.write("16")
    return private(pd, MAP_HUGETLB, 4 * MIB)


def dmabuf(pd):
    file = libc.memfd_create(b"memory", MFD_ALLOW_SEALING)
    os.ftruncate(file, MIB)
    fcntl.fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK)
    maker = os.open("/dev/udmabuf", os.O_RDWR)
    # Not fcntl.ioctl: that gives the bytes back, and not the result.
    buffer = libc.ioctl(maker, ctypes.c_ulong(UDMABUF_CREATE), struct.pack("IIQQ", file, 0, 0, MIB))
    # Not from its beginning: the device's address is then the offset.
    region = DmaBufMR(pd, MIB - 4096, ACCESS, dmabuf=buffer, offset=4096)
    return Region(region, 4096, mmap.mmap(file, MIB - 4096, offset=4096))


class Ends:
    """Two queue pairs that speak with each other."""

    def __init__(self, name, gid_index):
        self.context = Context(name=name)
        self.pd = PD(self.context)
        self.queue = CQ(self.context, 64)
        self.datagrams = name.startswith("efa")
        kind = QPT_UD if self.datagrams else QPT_RC
        caps = QPCap(max_send_wr=8, max_recv_wr=8, max_send_sge=1, max_recv_sge=1)
        init = QPInitAttr(qp_type=kind, scq=self.queue, rcq=self.queue, cap=caps)
        self.pairs = [QP(self.pd, init), QP(self.pd, init)]
        port = self.context.query_port(1)
        if self.datagrams or gid_index is not None:
            gid_index = gid_index or 0
            route = GlobalRoute(dgid=self.context.query_gid(1, gid_index), sgid_index=gid_index)
            way = AHAttr(gr=route, is_global=1, port_num=1)
        else:
            way = AHAttr(dlid=port.lid, port_num=1)
        for own, other in zip(self.pairs, reversed(self.pairs)):
            attr = QPAttr(port_num=1)
            if self.datagrams:
                attr.qkey = QKEY
            else:
                attr.qp_access_flags = ACCESS
                attr.dest_qp_num = other.qp_num
                attr.path_mtu = MTU_1024
                attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 14, 7, 7, 12
                attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
                attr.ah_attr = way
            own.to_rts(attr)
        self.handle = AH(self.pd, attr=way) if self.datagrams else None

    def carry(self, source, target, data):
        """Sends from one region to another, and gives what has arrived."""
        front = GRH if self.datagrams else 0
        left, right = self.pairs
        source.memory[:LENGTH] = data
        target.memory[: LENGTH + front] = bytes(LENGTH + front)
        place = SGE(target.address, LENGTH + front, target.region.lkey)
        right.post_recv(RecvWR(sg=[place], num_sge=1))
        work = SendWR(sg=[SGE(source.address, LENGTH, source.region.lkey)], num_sge=1, opcode=WR_SEND)
        if self.datagrams:
            work.set_wr_ud(self.handle, right.qp_num, QKEY)
        left.post_send(work)
        done = []
        for _ in range(LOOKS):
            done += self.queue.poll(2)[1]
            if len(done) == 2:
                break
            time.sleep(0.001)
        states = [completion.status for completion in done]
        if states != [WC_SUCCESS] * 2:
            return f"completions {states}"
        return "arrived" if target.memory[front : LENGTH + front] == data else "other data arrived"


def main(name, gid_index=None):
    ends = Ends(name, None if gid_index is None else int(gid_index))
    plain = private(ends.pd)
    for what, make in [("plain", private), ("huge pages", huge), ("dma-buf", dmabuf), ("after a fork", private)]:
        if what == "dma-buf" and not os.path.exists("/dev/udmabuf"):
            continue
        try:
            region = make(ends.pd)
        except PyverbsError as error:
            print(what, "cannot be registered:", os.strerror(getattr(error, "error_code", 0) or 0))
            continue
        child = 0
        if what == "after a fork":
            region.memory[:LENGTH] = bytes(LENGTH)
            child = os.fork()
            if child == 0:
                # It has the same memory, and writes other things there.
                region.memory[:LENGTH] = b"c" * LENGTH
                signal.pause()
        data = os.urandom(LENGTH)
        print(what, "out of:", ends.carry(region, plain, data))
        print(what, "into:", ends.carry(plain, region, data[::-1]), flush=True)
        if child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    # pyverbs takes things down in an order of its own.
    sys.stdout.flush()
    os._exit(0)


main(*sys.argv[1:])
