"""The cost of verbs: prints a line for each, its name and the median of its times in microseconds.

    verb_costs.py DEVICE GID_INDEX COUNT
"""
import ctypes
import mmap
import statistics
import sys
import time

import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr

DEVICE, GID_INDEX, COUNT = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
RTR = (e.IBV_QP_STATE | e.IBV_QP_AV | e.IBV_QP_PATH_MTU | e.IBV_QP_DEST_QPN | e.IBV_QP_RQ_PSN
       | e.IBV_QP_MAX_DEST_RD_ATOMIC | e.IBV_QP_MIN_RNR_TIMER)
RTS = (e.IBV_QP_STATE | e.IBV_QP_SQ_PSN | e.IBV_QP_TIMEOUT | e.IBV_QP_RETRY_CNT
       | e.IBV_QP_RNR_RETRY | e.IBV_QP_MAX_QP_RD_ATOMIC)
TIMES = {}


def timed(name, action):
    start = time.perf_counter_ns()
    result = action()
    TIMES.setdefault(name, []).append((time.perf_counter_ns() - start) / 1000)
    return result


def touched(size):
    """Memory that is there, so that no page fault is counted."""
    area = mmap.mmap(-1, size)
    for at in range(0, size, 4096):
        area[at] = 1
    return area


def address_of(area):
    return ctypes.addressof(ctypes.c_char.from_buffer(area))


def connect(qp, number):
    """To itself: an address handle of its own GID."""
    attr = QPAttr(port_num=1)
    attr.qp_access_flags = ACCESS
    timed("modify to INIT", lambda: qp.to_init(attr))
    attr.path_mtu, attr.dest_qp_num, attr.rq_psn = e.IBV_MTU_1024, number, 0
    attr.max_dest_rd_atomic, attr.min_rnr_timer = 1, 12
    attr.ah_attr = AHAttr(gr=GlobalRoute(dgid=GID, sgid_index=GID_INDEX), is_global=1, port_num=1)
    attr.qp_state = e.IBV_QPS_RTR
    timed("modify to RTR", lambda: qp.modify(attr, RTR))
    attr.sq_psn, attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.max_rd_atomic = 0, 14, 7, 7, 1
    attr.qp_state = e.IBV_QPS_RTS
    timed("modify to RTS", lambda: qp.modify(attr, RTS))


for _ in range(max(COUNT // 4, 20)):
    timed("open", lambda: Context(name=DEVICE)).close()

context = Context(name=DEVICE)
GID = context.query_gid(1, GID_INDEX)
small, large = touched(4096), touched(64 << 20)
SMALL, LARGE = address_of(small), address_of(large)
for _ in range(COUNT):
    timed("query_gid", lambda: context.query_gid(1, GID_INDEX))
    pd = timed("alloc_pd", lambda: PD(context))
    mr = timed("reg_mr 4 KB", lambda: MR(pd, 4096, ACCESS, address=SMALL))
    timed("dereg_mr 4 KB", mr.close)
    cq = timed("create_cq", lambda: CQ(context, 100))
    init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(max_send_wr=64, max_recv_wr=64))
    qp = timed("create_qp", lambda: QP(pd, init))
    connect(qp, qp.qp_num)
    timed("destroy_qp", qp.close)
    timed("destroy_cq", cq.close)
    timed("dealloc_pd", pd.close)
pd = PD(context)
for _ in range(max(COUNT // 20, 5)):
    mr = timed("reg_mr 64 MB", lambda: MR(pd, 64 << 20, ACCESS, address=LARGE))
    timed("dereg_mr 64 MB", mr.close)
pd.close()
for name, times in TIMES.items():
    print(f"{name}\t{statistics.median(times):.1f}")
