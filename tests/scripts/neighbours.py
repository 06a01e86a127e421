"""One of many tenants of a port; one line each.

    neighbours.py DEVICE GID    prints "devices NAMES gids INDEX=GID,...", what the tenant sees; then takes
                                lines, and answers each with one:
                                speak INDEX...  "ERRNO COUNT ...": an address handle and a queue pair from
                                                each of these sources to GID, and how the calls ended
                                free            destroys all
"""
import errno
import os
import sys
from collections import Counter

from pyverbs.addr import AH, GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr

RC = 2  # enum ibv_qp_type
FOLDER = "/sys/class/infiniband"


def outcome(call):
    try:
        call()
    except PyverbsRDMAError as e:
        return errno.errorcode.get(e.error_code, str(e.error_code))
    return "0"


class Tenant:
    def __init__(self, device, gid):
        self.gid = gid
        self.ctx = Context(name=device)
        self.pd, self.cq = PD(self.ctx), CQ(self.ctx, 8)

    def seen(self):
        entries = self.ctx.query_gid_table(1024)
        own = (f"{e.gid_index}={e.gid_str()}" for e in entries)
        return f"devices {','.join(sorted(os.listdir(FOLDER)))} gids {','.join(own)}"

    def path(self, index):
        route = GlobalRoute(dgid=GID(self.gid), sgid_index=index)
        return AHAttr(gr=route, is_global=1, port_num=1)

    def connect(self, index):
        init = QPInitAttr(qp_type=RC, scq=self.cq, rcq=self.cq, cap=QPCap(max_send_wr=1, max_recv_wr=1))
        with QP(self.pd, init) as qp:
            qp.to_init(QPAttr(port_num=1))
            attr = QPAttr(port_num=1)
            attr.path_mtu, attr.dest_qp_num, attr.ah_attr = 3, qp.qp_num, self.path(index)
            qp.to_rtr(attr)

    def speak(self, indices):
        ends = Counter()
        for index in map(int, indices):
            ends[outcome(lambda index=index: AH(self.pd, attr=self.path(index)).close())] += 1
            ends[outcome(lambda index=index: self.connect(index))] += 1
        return " ".join(f"{end} {count}" for end, count in sorted(ends.items()))

    def free(self):
        self.cq.close()
        self.pd.close()
        self.ctx.close()
        return "free"


def main(device, gid):
    tenant = Tenant(device, gid)
    print(tenant.seen(), flush=True)
    for line in sys.stdin:
        what, *rest = line.split()
        print(tenant.speak(rest) if what == "speak" else tenant.free(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
