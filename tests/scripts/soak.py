"""One role of a soak: the same work again and again, until the time is over.

    soak.py ROLE DEVICE NODE GID_INDEX GID ADDRESS SECONDS

The last line says how often the work was done: `rounds N`. Any other end is a failure.
"""
import ctypes
import mmap
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

ROLE, DEVICE, NODE, GID_INDEX, GID, ADDRESS = sys.argv[1:7]
END = time.monotonic() + float(sys.argv[7])
PERFTEST = ["-d", DEVICE, "-x", GID_INDEX, "-F"]
# Of one program; only a hang reaches that.
LIMIT = 300
REGISTRATIONS = 1_000_000
CLIENTS = 8
PINGS = 5
MESSAGE = 4096
PORT = 7174
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


class Rsocket:
    """A stream of rsocket(7): librdmacm makes it of a queue pair, and both ends find each other by rdma_cm.

    The server `rping -P` of rdma-core 56 stopped answering after 500 to 1,100 seconds of 32 clients that come at the same
    time, also natively: four of them waited until the server was ended. (Its listen queue holds three.)
    """

    LIBRARY = ctypes.CDLL("librdmacm.so.1", use_errno=True)
    NAME = struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", PORT, socket.inet_aton(ADDRESS))

    def __init__(self, number=None):
        self.number = self.do("rsocket", socket.AF_INET, socket.SOCK_STREAM, 0) if number is None else number

    @classmethod
    def do(cls, call, *arguments):
        result = getattr(cls.LIBRARY, call)(*arguments)
        if result < 0:
            error = ctypes.get_errno()
            raise OSError(error, f"{call}: {os.strerror(error)}")
        return result

    def listen(self):
        self.do("rbind", self.number, self.NAME, len(self.NAME))
        self.do("rlisten", self.number, 128)

    def accept(self):
        return Rsocket(self.do("raccept", self.number, None, None))

    def connect(self):
        self.do("rconnect", self.number, self.NAME, len(self.NAME))

    def send(self, data):
        while data:
            data = data[self.do("rsend", self.number, data, ctypes.c_size_t(len(data)), 0) :]

    def receive(self, most):
        data = ctypes.create_string_buffer(most)
        length = self.do("rrecv", self.number, data, ctypes.c_size_t(most), 0)
        return data.raw[:length]

    def close(self):
        self.do("rclose", self.number)


def serve():
    """Sends back what each client sends, with a thread for each."""
    served = []

    def echo(client):
        while data := client.receive(MESSAGE):
            client.send(data)
        client.close()
        served.append(client)

    def accept():
        while True:
            threading.Thread(target=echo, args=[listener.accept()], daemon=True).start()

    listener = Rsocket()
    listener.listen()
    threading.Thread(target=accept, daemon=True).start()
    # Longer than the last round of clients takes.
    time.sleep(max(left(), 1) + 120)
    return len(served)


def call():
    """One of four sandboxes: with the others, 32 clients at once."""

    def work():
        time.sleep(REST)
        time.sleep(-time.time() % PERIOD)
        for client in [start(sys.executable, __file__, "ping", *sys.argv[2:]) for _ in range(CLIENTS)]:
            done(client)

    return CLIENTS * again(work)


def ping():
    """A client."""
    server = Rsocket()
    # Until the server listens.
    while True:
        try:
            server.connect()
            break
        except ConnectionRefusedError:
            server.close()
            time.sleep(1)
            server = Rsocket()
    for _ in range(PINGS):
        data = random.randbytes(MESSAGE)
        server.send(data)
        back = b""
        while len(back) < MESSAGE and (more := server.receive(MESSAGE - len(back))):
            back += more
        if back != data:
            sys.exit(f"{len(back)} bytes came back, not the {MESSAGE} that were sent")
    server.close()
    return PINGS


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
         (receive, send, watch, register, fork, serve, call, ping, connect, pairs, end)}
rounds = ROLES[ROLE]()
print(f"rounds {rounds}")
if rounds == 0:
    sys.exit(f"{ROLE} has done nothing")
