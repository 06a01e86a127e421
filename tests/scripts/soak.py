"""One role of a soak: the same work again and again, until the time is over.

    soak.py ROLE DEVICE NODE GID_INDEX GID ADDRESS SECONDS

The last line says how often the work was done: `rounds N`. Any other end is a failure.
"""
import mmap
import os
import random
import signal
import subprocess
import sys
import time

ROLE, DEVICE, NODE, GID_INDEX, GID, ADDRESS = sys.argv[1:7]
END = time.monotonic() + float(sys.argv[7])
PERFTEST = ["-d", DEVICE, "-x", GID_INDEX, "-F"]
# Of one program; only a hang reaches that.
LIMIT = 300
REGISTRATIONS = 1_000_000
CLIENTS = 8
PINGS = 5
# All sandboxes of clients start their rounds at multiples of PERIOD, and have rested before: longer than the time
# between two looks at their supervisors, so that these are also seen without guests.
PERIOD = 10
REST = 4


def left():
    return END - time.monotonic()


def listens(port):
    local = f":{port:04X}"
    for path in "/proc/net/tcp", "/proc/net/tcp6":
        with open(path) as table:
            fields = [line.split() for line in table][1:]
        if any(line[1].endswith(local) and line[3] == "0A" for line in fields):
            return True
    return False


def start(*argv):
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def until(what, is_so):
    late = time.monotonic() + LIMIT
    while not is_so():
        if time.monotonic() > late:
            sys.exit(f"waited {LIMIT} s for {what}")
        time.sleep(0.05)


def done(program, statuses=(0,)):
    # What lasts until the time is over may do so.
    said, _ = program.communicate(timeout=max(left(), 0) + LIMIT)
    if program.returncode not in statuses:
        sys.exit(f"{program.args} ended with {program.returncode}: {said[-2000:]}")
    return said


def again(work):
    rounds = 0
    while left() > 0:
        work()
        rounds += 1
    return rounds


def lasting():
    """Seconds that traffic takes; perftest wants whole ones, and its ends start and end within some."""
    return str(max(5, int(left()) - 10))


def receive():
    done(start("ib_write_bw", *PERFTEST, "-s", "65536", "-D", lasting()))
    return 1


def send():
    until("the receiving end", lambda: listens(18515))
    said = done(start("ib_write_bw", *PERFTEST, "-s", "65536", "-D", lasting(), "127.0.0.1"))
    rows = [line.split() for line in said.splitlines()]
    # Columns: bytes, iterations.
    return next(int(row[1]) for row in rows if row and row[0] == "65536")


def watch():
    watcher = start("ibv_asyncwatch", "-d", DEVICE)
    time.sleep(max(left(), 1))
    watcher.send_signal(signal.SIGINT)
    said = done(watcher, (0, -signal.SIGINT))
    return said.count("event_type")


def register():
    import ctypes
    import pyverbs.enums as e
    from pyverbs.device import Context
    from pyverbs.mr import MR
    from pyverbs.pd import PD
    area = mmap.mmap(-1, 1 << 20)
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    pd = PD(Context(name=DEVICE))
    count = 0
    while left() > 0 and count < REGISTRATIONS:
        size = 4096 << random.randrange(8)
        MR(pd, size, e.IBV_ACCESS_LOCAL_WRITE, address=address).close()
        count += 1
    return count


def fork():
    """A server that forks for each client: children leave all objects to the kernel."""
    import pyverbs.enums as e
    from pyverbs.cq import CQ
    from pyverbs.device import Context
    from pyverbs.pd import PD
    from pyverbs.qp import QP, QPCap, QPInitAttr

    def child():
        context = Context(name=DEVICE)
        pd, cq = PD(context), CQ(context, 16)
        QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap()))
        os._exit(7)

    def work():
        children = []
        for _ in range(4):
            pid = os.fork()
            if pid == 0:
                try:
                    child()
                finally:
                    os._exit(1)
            children.append(pid)
        for pid in children:
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if status != 7:
                sys.exit(f"a child ended with {status}")

    return 4 * again(work)


def serve():
    server = start("rping", "-s", "-P", "-a", ADDRESS)
    # Longer than the last round of clients takes.
    time.sleep(max(left(), 1) + 120)
    server.terminate()
    done(server, (0, -signal.SIGTERM))
    return 1


def call():
    """One of four sandboxes: with the others, 32 clients at once."""
    served = late = 0
    while left() > 0:
        time.sleep(REST)
        time.sleep(-time.time() % PERIOD)
        clients = [start("rping", "-c", "-v", "-V", "-C", str(PINGS), "-a", ADDRESS) for _ in range(CLIENTS)]
        for client in clients:
            said, _ = client.communicate(timeout=LIMIT)
            # The rping of rdma-core 56 ends like this now and then, when all is done: one thread closes the channel from
            # which another is about to read. (That of rdma-core 65 tells the other thread first.)
            closed = "rdma_get_cm_event: Bad file descriptor" in said and said.count("ping data") == PINGS
            if client.returncode == 0 or closed:
                served += 1
                continue
            # Until the server listens, and of more requests at once than rping listens for, which are three.
            if "REJECTED" in said:
                continue
            # The connection manager asks for some seconds only, whatever else the machine has to do.
            late += 1
            if "UNREACHABLE" not in said or late > 2 + served // 20:
                sys.exit(f"a client ended with {client.returncode}: {said[-2000:]}")
    return served


def connect():
    def work():
        both = ["ucmatose", "-c", "1000", "-C", "1"]
        server = start(*both, "-b", ADDRESS)
        # Nothing tells that a server of rdma_cm listens; a client that comes too early is rejected.
        while True:
            time.sleep(1)
            client = start(*both, "-s", ADDRESS)
            said, _ = client.communicate(timeout=LIMIT)
            if client.returncode == 0 and "test complete" in said:
                break
            if server.poll() is not None:
                sys.exit(f"ucmatose: {said[-2000:]}")
        done(server)

    return 1000 * again(work)


def pairs():
    script = f"echo pairs 1250 {GID_INDEX} | verbgate-guest neighbour {NODE} {GID} 0"

    def work():
        for program in [start("sh", "-c", script) for _ in range(8)]:
            if "pairs after" not in done(program):
                sys.exit("not all queue pairs were made")

    return 10_000 * again(work)


def end():
    """Ends of traffic are interrupted, or killed, at any moment."""
    def work():
        port = random.randrange(20000, 30000)
        flow = ["ib_write_bw", *PERFTEST, "-s", "65536", "-D", "20", "-p", str(port)]
        ends = [start(*flow)]
        until("the server", lambda: listens(port) or ends[0].poll() is not None)
        ends.append(start(*flow, "127.0.0.1"))
        time.sleep(random.uniform(0, 3))
        victim = random.choice(ends)
        victim.send_signal(random.choice([signal.SIGINT, signal.SIGKILL]))
        victim.communicate(timeout=LIMIT)
        # The other end need not see that by itself: writes of a dead end just stop.
        other = ends[1 - ends.index(victim)]
        try:
            other.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            other.kill()
            other.communicate(timeout=LIMIT)

    return again(work)


ROLES = {f.__name__: f for f in
         (receive, send, watch, register, fork, serve, call, connect, pairs, end)}
rounds = ROLES[ROLE]()
print(f"rounds {rounds}")
if rounds == 0:
    sys.exit(f"{ROLE} has done nothing")
