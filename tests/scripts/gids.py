"""What GIDs a program sees, and by which it can speak; one line each.

    gids.py see DEVICE           the table as the library tells it, each entry of it, and sysfs
    gids.py speak DEVICE INDEX GID
                                 an address handle and a queue pair from this source to this GID: 0
                                 or the errno
    gids.py add DEVICE NETDEV ADDRESS
                                 gives a network device an address, and tells after how many
                                 milliseconds its GID was seen in each way
"""
import errno
import os
import socket
import subprocess
import sys
import time

from pyverbs.addr import AH, GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError, PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr

# How often a wait looks before it gives up.
LOOKS = 1000
RC = 2  # enum ibv_qp_type
EMPTY = "0000:0000:0000:0000:0000:0000:0000:0000"


def outcome(call):
    try:
        call()
    except PyverbsRDMAError as e:
        return errno.errorcode.get(e.error_code, str(e.error_code))
    except PyverbsError as e:
        return str(e)
    return "0"


def table(ctx):
    entries = ctx.query_gid_table(1024)
    return {(e.port_num, e.gid_index): (e.gid_str(), e.ndev_ifindex) for e in entries}


def sysfs(device, indices=None):
    seen = {}
    folder = f"/sys/class/infiniband/{device}/ports/1/gids"
    if indices is None:
        indices = os.listdir(folder) if os.path.exists(folder) else []
    for index in indices:
        # A sandbox's table ends behind its last entry.
        if not os.path.exists(f"{folder}/{index}"):
            continue
        with open(f"{folder}/{index}") as file:
            gid = file.read().strip()
        if gid != EMPTY:
            seen[1, int(index)] = gid
    return seen


def see(device):
    with Context(name=device) as ctx:
        print(f"length {ctx.query_port(1).gid_tbl_len}")
        folder = f"/sys/class/infiniband/{device}/ports/1"
        for kind in "gids", "gid_attrs/types", "gid_attrs/ndevs":
            path = f"{folder}/{kind}"
            print(f"files {kind} {len(os.listdir(path)) if os.path.exists(path) else 0}")
        for (port, index), (gid, ifindex) in sorted(table(ctx).items()):
            print(f"table {port} {index} {gid} {ifindex}")
        for index in range(16):
            def query(index=index):
                e = ctx.query_gid_ex(port_num=1, gid_index=index)
                print(f"entry 1 {index} {e.gid_str()} {e.ndev_ifindex}")
            result = outcome(query)
            if result != "0":
                print(f"entry 1 {index} {result}")
        for (port, index), gid in sorted(sysfs(device).items()):
            print(f"sysfs {port} {index} {gid}")


def speak(device, index, gid):
    with Context(name=device) as ctx, PD(ctx) as pd, CQ(ctx, 8) as cq:
        route = GlobalRoute(dgid=GID(gid), sgid_index=index)
        way = AHAttr(gr=route, is_global=1, port_num=1)
        print("ah", outcome(lambda: AH(pd, attr=way).close()))
        cap = QPCap(max_send_wr=4, max_recv_wr=4)
        init = QPInitAttr(qp_type=RC, scq=cq, rcq=cq, cap=cap)
        with QP(pd, init) as qp:
            attr = QPAttr(port_num=1)
            qp.to_init(attr)
            attr = QPAttr(port_num=1)
            attr.path_mtu, attr.dest_qp_num, attr.ah_attr = 3, qp.qp_num, way
            print("qp", outcome(lambda: qp.to_rtr(attr)))


def add(device, netdev, address):
    gid = "0000:0000:0000:0000:0000:ffff:" + socket.inet_aton(address).hex(":", 2)
    with Context(name=device) as ctx:
        subprocess.run(["ip", "address", "add", f"{address}/24", "dev", netdev], check=True)
        started = time.monotonic()
        waited = {
            "table": lambda: gid in [found for found, _ in table(ctx).values()],
            "entry": lambda: gid in [str(ctx.query_gid(1, i)) for i in range(16)],
            # Soft-RoCE's table has a thousand, and reading them all takes its time.
            "sysfs": lambda: gid in sysfs(device, range(16)).values(),
        }
        for _ in range(LOOKS):
            if not waited:
                break
            time.sleep(0.1)
            for way, seen in list(waited.items()):
                if seen():
                    del waited[way]
                    print(way, round((time.monotonic() - started) * 1000))
        sys.exit(f"not seen: {list(waited)}" if waited else 0)


if __name__ == "__main__":
    what, device, *rest = sys.argv[1:]
    if what == "see":
        see(device)
    elif what == "speak":
        speak(device, int(rest[0]), rest[1])
    else:
        add(device, *rest)
