"""Neighbours on one NIC, of whom one is hostile; one line each.

    tenants.py victim DEVICE INDEX
                        a UD queue pair that waits for a message: prints "qpn NUMBER", for each line of
                        standard input what has come until then: "got TEXT" or "nothing"
    tenants.py udp FROM TO QPN TEXT
                        sends that queue pair a message by a plain UDP socket: 0 or the errno
    tenants.py ud DEVICE INDEX GID NETDEV
                        sends a message by a queue pair, and looks whether the packet comes to NETDEV
    tenants.py path DEVICE INDEX GID QPN SL TRAFFIC_CLASS
                        an RC queue pair that is made ready to receive from there: 0 or the errno
    tenants.py forge DEVICE INDEX GID NETDEV
                        the same as ud: "from ADDRESS" of the packet, or the step that failed, and the errno
    tenants.py keys DEVICE INDEX LKEY RKEY ADDRESS
                        sends from, and writes to, memory by another's keys: the status of each
    tenants.py families sockets of the kinds that the kernel itself carries by RDMA: 0 or the errno
    tenants.py server DEVICE INDEX
                        an RC queue pair: prints "QPN RKEY ADDRESS"; takes lines "connect QPN", "lkey"
                        and "show", and answers each
    tenants.py client DEVICE INDEX GID SERVER_QPN RKEY ADDRESS TEXT
                        the other end: prints "QPN"; takes lines "connect", "write" and "post" (a write whose
                        end is not waited for), and answers each
"""
import errno
import ipaddress
import os
import socket
import struct
import sys
import time
import types
import zlib

# How often a wait looks before it gives up.
LOOKS = 10_000
PORT = 4791
QKEY = 0x11111111
PSN = 0x1234
ROOM = 256
PLACE = 64
GRH = 40


def say(*words):
    print(*words, flush=True)


def code(number):
    return errno.errorcode.get(number, str(number)) if number else "0"


def constants():
    """The constants of verbs: names of a module, or since rdma-core 65 members of its classes."""
    try:
        import pyverbs.enums as found
        return found
    except ImportError:
        import pyverbs.libibverbs_enums as found
    names = types.SimpleNamespace()
    for one in vars(found).values():
        for name, value in getattr(one, "__members__", {}).items():
            setattr(names, name, int(value))
    return names


def verbs():
    """What needs a device is imported where there is one."""
    global AH, AHAttr, GID, GlobalRoute, CQ, Context, MR, PD, QP, QPAttr, QPCap, QPInitAttr
    global PyverbsRDMAError, RecvWR, SGE, SendWR, e
    e = constants()
    from pyverbs.addr import AH, AHAttr, GID, GlobalRoute
    from pyverbs.cq import CQ
    from pyverbs.device import Context
    from pyverbs.mr import MR
    from pyverbs.pd import PD
    from pyverbs.pyverbs_error import PyverbsRDMAError
    from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
    from pyverbs.wr import RecvWR, SGE, SendWR


class End:
    """A queue pair, and memory for messages."""

    def __init__(self, device, index, kind):
        self.index = index
        self.ctx = Context(name=device)
        self.pd = PD(self.ctx)
        self.cq = CQ(self.ctx, 16)
        access = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
        self.mr = MR(self.pd, ROOM, access)
        cap = QPCap(max_send_wr=8, max_recv_wr=8)
        init = QPInitAttr(qp_type=kind, scq=self.cq, rcq=self.cq, cap=cap)
        self.qp = QP(self.pd, init)

    def way(self, gid, level=0, traffic=0):
        # In words: Python 3.13 gives the address that a GID is made of in its own notation.
        words = ":".join(f"{word:04x}" for word in struct.unpack(">8H", ipaddress.IPv6Address(gid).packed))
        route = GlobalRoute(dgid=GID(words), sgid_index=self.index, traffic_class=traffic)
        return AHAttr(gr=route, is_global=1, port_num=1, sl=level)

    def datagrams(self):
        attr = QPAttr(port_num=1)
        attr.qkey = QKEY
        self.qp.to_rts(attr)

    def connect(self, gid, number, **path):
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
        self.qp.to_init(attr)
        attr.path_mtu = e.IBV_MTU_1024
        attr.dest_qp_num, attr.rq_psn, attr.ah_attr = number, PSN, self.way(gid, **path)
        attr.min_rnr_timer, attr.max_dest_rd_atomic = 12, 1
        self.qp.to_rtr(attr)
        attr = QPAttr(port_num=1)
        attr.sq_psn, attr.timeout, attr.retry_cnt, attr.rnr_retry = PSN, 14, 7, 7
        attr.max_rd_atomic = 1
        self.qp.to_rts(attr)

    def sge(self, length):
        return SGE(self.mr.buf, length, self.mr.lkey)

    def completion(self):
        for _ in range(LOOKS):
            count, found = self.cq.poll()
            if count:
                return found[0]
            time.sleep(0.01)
        return None


def victim(device, index):
    end = End(device, int(index), e.IBV_QPT_UD)
    end.datagrams()
    # Each message has a place of its own: a later one must not hide an earlier one.
    for place in range(0, ROOM, PLACE):
        sge = SGE(end.mr.buf + place, PLACE, end.mr.lkey)
        end.qp.post_recv(RecvWR(wr_id=place, num_sge=1, sg=[sge]))
    say("qpn", end.qp.qp_num)
    for _ in sys.stdin:
        done = end.completion()
        if done is None or done.status != e.IBV_WC_SUCCESS:
            say("nothing")
        else:
            say("got", end.mr.read(done.byte_len - GRH, done.wr_id + GRH).decode().strip())


def udp(source, target, number, text):
    """A packet of RoCE v2 (InfiniBand Architecture Specification, annex A17), by a program."""
    # include/rdma/ib_pack.h: UD SEND ONLY, migrated; the default P_Key; queue pair; PSN.
    payload = text.encode().ljust(16)
    bth = struct.pack("!BBHII", 0x64, 0x40, 0xFFFF, int(number), 0)
    deth = struct.pack("!II", QKEY, 1)
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    # IP_MTU_DISCOVER, IP_PMTUDISC_DO: the packet's number is 0, which the checksum covers.
    sock.setsockopt(socket.IPPROTO_IP, 10, 2)
    sock.bind((source, 0xC123))
    length = len(bth) + len(deth) + len(payload) + 4
    addresses = socket.inet_aton(source) + socket.inet_aton(target)
    # What changes on the way counts as ones.
    ip = struct.pack("!BBHHHBBH", 0x45, 0xFF, 28 + length, 0, 0x4000, 0xFF, 17, 0xFFFF) + addresses
    ports = struct.pack("!HHHH", 0xC123, PORT, 8 + length, 0xFFFF)
    masked = bth[:4] + b"\xff" + bth[5:]
    check = zlib.crc32(b"\xff" * 8 + ip + ports + masked + deth + payload)
    packet = bth + deth + payload + struct.pack("<I", check)
    try:
        sock.sendto(packet, (target, PORT))
        say("0")
    except OSError as error:
        say(code(error.errno))


def ud(device, index, gid, netdev):
    end = End(device, int(index), e.IBV_QPT_UD)
    end.datagrams()
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
    tap.bind((netdev, 0))
    ah = AH(end.pd, attr=end.way(gid))
    wr = SendWR(num_sge=1, sg=[end.sge(16)], opcode=e.IBV_WR_SEND)
    wr.set_wr_ud(ah, 1, QKEY)
    end.qp.post_send(wr)
    while True:
        frame = tap.recv(2048)
        if frame[23] == 17 and struct.unpack("!H", frame[36:38])[0] == PORT:
            return say("passed")


def path(device, index, gid, number, level, traffic):
    end = End(device, int(index), e.IBV_QPT_RC)
    try:
        end.connect(gid, int(number), level=int(level), traffic=int(traffic))
        say("0")
    except PyverbsRDMAError as error:
        say(code(error.error_code))


def forge(device, index, gid, netdev):
    step = "queue-pair"
    try:
        end = End(device, int(index), e.IBV_QPT_UD)
        end.datagrams()
        step = "address-handle"
        ah = AH(end.pd, attr=end.way(gid))
    except PyverbsRDMAError as error:
        return say(step, code(error.error_code))
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
    tap.bind((netdev, 0))
    wr = SendWR(num_sge=1, sg=[end.sge(16)], opcode=e.IBV_WR_SEND)
    wr.set_wr_ud(ah, 1, QKEY)
    end.qp.post_send(wr)
    while True:
        frame = tap.recv(2048)
        if frame[23] == 17 and struct.unpack("!H", frame[36:38])[0] == PORT:
            return say("from", socket.inet_ntoa(frame[26:30]))


def keys(device, index, lkey, rkey, address):
    answers = []
    for by in (e.IBV_WR_SEND, e.IBV_WR_RDMA_WRITE):
        # Its own two ends: an error ends a queue pair.
        end, other = (End(device, int(index), e.IBV_QPT_RC) for _ in range(2))
        gid = str(end.ctx.query_gid(1, end.index))
        end.connect(gid, other.qp.qp_num)
        other.connect(gid, end.qp.qp_num)
        other.qp.post_recv(RecvWR(num_sge=1, sg=[other.sge(16)]))
        if by == e.IBV_WR_SEND:
            wr = SendWR(num_sge=1, sg=[SGE(int(address), 16, int(lkey))], opcode=by)
        else:
            wr = SendWR(num_sge=1, sg=[end.sge(16)], opcode=by)
            wr.set_wr_rdma(int(rkey), int(address))
        end.qp.post_send(wr)
        done = end.completion()
        answers.append("nothing" if done is None else str(done.status))
    say("status", *answers)


def families():
    kinds = [
        ("smc", 43, socket.SOCK_STREAM, 0),
        ("smc of tcp", socket.AF_INET, socket.SOCK_STREAM, 256),
        ("rds", 21, socket.SOCK_SEQPACKET, 0),
        ("rxrpc", 33, socket.SOCK_DGRAM, socket.AF_INET),
    ]
    for name, *kind in kinds:
        try:
            socket.socket(*kind).close()
            say(name, "0")
        except OSError as error:
            say(name, code(error.errno))


def server(device, index):
    end = End(device, int(index), e.IBV_QPT_RC)
    gid = str(end.ctx.query_gid(1, end.index))
    say(end.qp.qp_num, end.mr.rkey, end.mr.buf)
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "lkey":
            say(end.mr.lkey)
        elif word == "connect":
            end.connect(gid, int(rest[0]))
            say("connected")
        else:
            say("holds", end.mr.read(16, 0).decode().strip("\0 ") or "nothing")


def client(device, index, gid, number, rkey, address, text):
    end = End(device, int(index), e.IBV_QPT_RC)
    say(end.qp.qp_num)
    for line in sys.stdin:
        if line.strip() == "connect":
            try:
                end.connect(gid, int(number))
                say("0")
            except PyverbsRDMAError as error:
                say(code(error.error_code))
        else:
            end.mr.write(text.encode().ljust(16), 16)
            wr = SendWR(num_sge=1, sg=[end.sge(16)], opcode=e.IBV_WR_RDMA_WRITE)
            wr.set_wr_rdma(int(rkey), int(address))
            end.qp.post_send(wr)
            if line.strip() == "post":
                say("0")
                continue
            done = end.completion()
            say("nothing" if done is None else f"status {done.status}")


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    if what not in ("udp", "families"):
        verbs()
    {"victim": victim, "udp": udp, "ud": ud, "path": path, "forge": forge, "keys": keys,
     "families": families, "server": server, "client": client}[what](*arguments)
