"""What a ConnectX keeps for programs beside queues: rules for packets, counters of those, changes of headers,
doorbells of virtio queues, operations on memory of the device. Requests as the libraries make them.

    steering.py DEVICE

Prints what each request came to, without numbers that differ from one run to the next.
"""

import ctypes as c
import fcntl
import glob
import mmap
import os
import struct
import sys

verbs = c.CDLL("libibverbs.so.1", use_errno=True)
mlx5 = c.CDLL("libmlx5.so.1", use_errno=True)
RDMA_DRIVER_MLX5 = 1
P, U32, U64, SIZE = c.c_void_p, c.c_uint32, c.c_uint64, c.c_size_t
# Objects.
DEVICE, QP, MR, FLOW, ACTION, DM, COUNTERS = 0, 4, 7, 9, 13, 14, 15
DEVX, MATCHER, VAR, ANCHOR = 0x1000, 0x1003, 0x1006, 0x1009


def call(library, name, result, *types):
    function = getattr(library, name)
    function.restype, function.argtypes = result, types
    return function


def say(what, result="ok"):
    print(f"{what}: {result}", flush=True)


def sure(what, result):
    if not result:
        sys.exit(f"{what}: {os.strerror(c.get_errno())}")
    return result


def open_device(name):
    count = c.c_int()
    devices = call(verbs, "ibv_get_device_list", c.POINTER(P), P)(c.byref(count))
    named = call(verbs, "ibv_get_device_name", c.c_char_p, P)
    for index in range(count.value):
        if named(devices[index]).decode() == name:
            # MLX5DV_CONTEXT_FLAGS_DEVX
            attributes = struct.pack("<IIQ", 1, 0, 0)
            return sure("a DEVX context", call(mlx5, "mlx5dv_open_device", P, P, P)(devices[index], attributes))
    sys.exit(f"no device {name}")


def ioctl(descriptor, object_, method, *attributes):
    """A request; gives the attributes' values afterwards. An attribute is its number, its length, its value, and
    for one of several kinds its kind."""
    packed = [struct.pack("<HHHHQ", *it[:2], 1, (*it, 0)[3], it[2]) for it in attributes]
    body = b"".join(packed)
    head = struct.pack("<HHHHQII", 24 + len(body), object_, method, len(attributes), 0, RDMA_DRIVER_MLX5, 0)
    request = bytearray(head + body)
    fcntl.ioctl(descriptor, 0xC0181B01, request)
    return [struct.unpack_from("<Q", request, 24 + 16 * index + 8)[0] for index in range(len(attributes))]


def ask(what, object_, method, *attributes, on=None):
    """The same, said; gives the first attribute's value, which is the new object's number."""
    try:
        values = ioctl(fd if on is None else on, object_, method, *attributes)
        say(what)
        return values[0] if values else None
    except OSError as error:
        say(what, error.strerror)
        return None


def end(what, object_, method, first, number):
    if number is not None:
        ask(f"end of {what}", object_, method, (first, 0, number))


def out(length):
    return c.create_string_buffer(length)


def at(buffer):
    return c.addressof(buffer)


context = open_device(sys.argv[1])
fd = c.cast(context, c.POINTER(c.c_int))[66]

# What the kernel knows of the context and its objects.
vectors, support, own_part = out(4), out(8), out(72)
ask("what the context has", DEVICE, 4, (0, 4, at(vectors)), (1, 8, at(support)), (0x1000, 72, at(own_part)))
say("vectors", struct.unpack("<I", vectors.raw)[0] > 0)
domain = sure("a protection domain", call(verbs, "ibv_alloc_pd", P, P)(context))
handles, total = out(64), out(4)
ask("protection domains", DEVICE, 1, (0, 8, 1), (1, 4, at(total)), (2, 64, at(handles)))
say("of which there are", struct.unpack("<I", total.raw)[0])
pages = mmap.mmap(-1, 8192)
address = c.addressof(c.c_char.from_buffer(pages))
region = sure("a region", call(verbs, "ibv_reg_mr", P, P, P, SIZE, c.c_int)(domain, address, 8192, 1))
lkey, rkey, length, iova = out(4), out(4), out(8), out(8)
ask("what a region is", MR, 3, (0, 0, c.cast(region, c.POINTER(U32))[8]), (1, 4, at(lkey)), (2, 4, at(rkey)),
    (3, 8, at(length)), (4, 8, at(iova)))
say("its length", struct.unpack("<Q", length.raw)[0])
say("its place", struct.unpack("<Q", iova.raw)[0] == address)
gids = out(32 * 8)
table = call(verbs, "_ibv_query_gid_table", c.c_ssize_t, P, P, SIZE, U32, SIZE)
say("GIDs", table(context, gids, 8, 0, 32))

# Rules: a matcher of everything, what is done to headers, and rules that drop.
DROP, DECAPSULATE = 2, 0
matcher = ask("a matcher", MATCHER, 0x1000, (0x1000, 0, 0), (0x1001, 8, 0), (0x1002, 2, 3, 0), (0x1003, 1, 0))
# `set_action_in`: eight bits of a source MAC address.
header = ask("a change of headers", ACTION, 0x1000, (0x1000, 0, 0),
             (0x1001, 8, struct.unpack("<Q", struct.pack(">II", 1 << 28 | 1 << 16 | 8, 7))[0]), (0x1002, 8, 0))
ask("a change of no headers", ACTION, 0x1000, (0x1000, 0, 0), (0x1001, 4, 0), (0x1002, 8, 0))
tunnel = ask("an end of tunnels", ACTION, 0x1001, (0x1000, 0, 0), (0x1001, 8, DECAPSULATE), (0x1002, 8, 0))
ask("a beginning of tunnels", ACTION, 0x1001, (0x1000, 0, 0), (0x1001, 8, 1), (0x1002, 8, 0))
rule = ask("a rule", FLOW, 0x1000, (0x1000, 0, 0), (0x1001, 8, 0), (0x1004, 0, matcher or 0), (0x1009, 4, DROP),
           (0x1006, 4, 77))
# A counter of a program's own: ALLOC_FLOW_COUNTER and what it is found by.
request, answer = struct.pack(">HHI", 0x939, 0, 0).ljust(16, b"\0"), out(16)
create = call(mlx5, "mlx5dv_devx_obj_create", P, P, P, SIZE, P, SIZE)
count = create(context, request, len(request), answer, 16)
say("a counter of the program's own", bool(count))
# A matcher of another order: its rules are in another table.
second = ask("another matcher", MATCHER, 0x1000, (0x1000, 0, 0), (0x1001, 8, 0), (0x1002, 2, 5, 0), (0x1003, 1, 0),
             (0x1005, 8, 0))
changed = ask("a rule with a change of headers", FLOW, 0x1000, (0x1000, 0, 0), (0x1001, 8, 0), (0x1004, 0, second or 0),
              (0x1009, 4, DROP), (0x1005, 4, header or 0), (0x1007, 4, c.cast(count, c.POINTER(U32))[2] if count else 0))
ask("a rule that goes nowhere and drops", FLOW, 0x1000, (0x1000, 0, 0), (0x1001, 8, 0), (0x1004, 0, matcher or 0),
    (0x1009, 4, 3))
anchor_table = out(4)
anchor = ask("an anchor", ANCHOR, 0x1000, (0x1000, 0, 0), (0x1001, 8, 0), (0x1002, 2, 9), (0x1003, 4, at(anchor_table)))
say("its table", struct.unpack("<I", anchor_table.raw)[0] != 0)
end("a matcher that a rule uses", MATCHER, 0x1001, 0x1000, matcher)

# Counters that the kernel reads, with a rule of the kernel's.
class Cap(c.Structure):
    _fields_ = [(name, U32) for name in ("sends", "receives", "send_pieces", "receive_pieces", "inline")]


class Queues(c.Structure):
    _fields_ = [("context", P), ("send", P), ("receive", P), ("shared", P), ("cap", Cap), ("type", c.c_int),
                ("signals", c.c_int)]


completions = sure("completions", call(verbs, "ibv_create_cq", P, P, c.c_int, P, P, c.c_int)(context, 16, None, None, 0))
wanted = Queues(None, completions, completions, None, Cap(4, 4, 1, 1, 0), 4, 0)
pair = sure("a queue pair", call(verbs, "ibv_create_qp", P, P, P)(domain, c.byref(wanted)))
counters = ask("counters", COUNTERS, 0, (0, 0, 0))
counted = out(16)
ask("counters that count nothing", COUNTERS, 2, (0, 0, counters or 0), (1, 16, at(counted)))
specs = struct.pack("<IHH", 0x1001, 8, 0) + struct.pack("<IHHII", 0x1003, 16, 0, counters or 0, 0)
flow = struct.pack("<IIIHHB2xBI", 0, c.cast(pair, c.POINTER(U32))[12], 0, len(specs), 0, 2, 1, 0) + specs
flow = c.create_string_buffer(flow, len(flow))
descriptions = c.create_string_buffer(struct.pack("<IIII", 0, 0, 1, 1), 16)
own = struct.pack("<IIQII", 1, 0, at(descriptions), 2, 0)
own = c.create_string_buffer(own, len(own))
made = out(8)
ask("a rule of the kernel's", DEVICE, 0, (0, len(flow), at(flow)), (1, 8, at(made)), (2, 8, 0x80000032),
    (0x1000, len(own), at(own)))
ask("what was counted", COUNTERS, 2, (0, 0, counters or 0), (1, 16, at(counted)))
say("packets and bytes", struct.unpack("<QQ", counted.raw))
end("counters that a rule uses", COUNTERS, 1, 0, counters)
kernels = struct.unpack("<II", made.raw)[1]
end("a rule of the kernel's", FLOW, 0, 0, kernels)
end("counters", COUNTERS, 1, 0, counters)

# Ends.
end("an anchor", ANCHOR, 0x1001, 0x1000, anchor)
end("a rule with a change of headers", FLOW, 0x1001, 0x1000, changed)
if count:
    say("end of a counter", call(mlx5, "mlx5dv_devx_obj_destroy", c.c_int, P)(count))
end("a rule", FLOW, 0x1001, 0x1000, rule)
end("a matcher", MATCHER, 0x1001, 0x1000, matcher)
end("another matcher", MATCHER, 0x1001, 0x1000, second)
end("a change of headers", ACTION, 1, 0, header)
end("an end of tunnels", ACTION, 1, 0, tunnel)

# Doorbells of virtio queues.
offset, length, page = out(8), out(4), out(4)
var = ask("doorbells of virtio", VAR, 0x1000, (0x1000, 0, 0), (0x1001, 8, at(offset)), (0x1002, 4, at(length)),
          (0x1003, 4, at(page)))
if var is not None:
    size = struct.unpack("<I", length.raw)[0]
    bells = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_WRITE, offset=struct.unpack("<Q", offset.raw)[0])
    bells[0:4] = b"\0\0\0\1"
    say("doorbells, in bytes", size)
    bells.close()
end("doorbells of virtio", VAR, 0x1001, 0x1000, var)

# Memory of the device, to which stores elsewhere add.
allocate = call(mlx5, "mlx5dv_alloc_dm", P, P, P, P)
dm = sure("memory on the device", allocate(context, struct.pack("<QII", 4096, 0, 0), struct.pack("<IIQ", 0, 0, 0)))
place = call(mlx5, "mlx5dv_dm_map_op_addr", P, P, c.c_uint8)
increments = place(dm, 0)
say("where stores add", bool(increments) or os.strerror(c.get_errno()))
say("another operation", bool(place(dm, 1)) or os.strerror(c.get_errno()))
if increments:
    Copy = c.CFUNCTYPE(c.c_int, P, P, U64, SIZE)
    CopyTo = c.CFUNCTYPE(c.c_int, P, U64, P, SIZE)
    CopyTo(c.cast(dm, c.POINTER(U64))[1])(dm, 0, struct.pack("<Q", 40), 8)
    U64.from_address(increments).value = 2
    sum_ = out(8)
    Copy(c.cast(dm, c.POINTER(U64))[2])(sum_, dm, 0, 8)
    say("forty and two", struct.unpack("<Q", sum_.raw)[0])
ask("end of memory on the device", DM, 1, (0, 0, c.cast(dm, c.POINTER(U32))[7]))

# A context of an older library, which takes pages of doorbells one by one.
node = glob.glob(f"/sys/class/infiniband/{sys.argv[1]}/device/infiniband_verbs/uverbs*")[0]
older = os.open("/dev/infiniband/" + os.path.basename(node), os.O_RDWR | os.O_CLOEXEC)
asked, got = c.create_string_buffer(8), out(8)
own = c.create_string_buffer(struct.pack("<IIIIBBHIQ", 16, 4, 1, 0, 1, 0, 0, 0, 0), 32)
own_answer = out(128)
ask("an older context", DEVICE, 0, (0, 8, at(asked)), (1, 8, at(got)), (2, 8, 0), (0x1000, 32, at(own)),
    (0x1001, 128, at(own_answer)), on=older)
# MLX5_IB_MMAP_ALLOC_WC gives such a page where the driver found that stores are combined: its test sends by a
# send queue without a queue pair, which the lab's model has not.
number = out(4)
ask("a page that nobody took", DEVX, 0x1001, (0x1000, 4, 0), (0x1001, 4, at(number)), on=older)
try:
    mmap.mmap(older, 4096, mmap.MAP_SHARED, mmap.PROT_WRITE, offset=6 << 8 << 12)
    say("a page is taken")
except OSError as error:
    say("a page is taken", error.strerror)
