"""Objects that a program makes by itself on a ConnectX (DEVX), and messages by them: the calls of libmlx5.

    devx.py DEVICE

Prints what each call came to, without numbers that differ from one run to the next.
"""

import ctypes as c
import fcntl
import mmap
import os
import select
import struct
import sys
import time

verbs = c.CDLL("libibverbs.so.1", use_errno=True)
mlx5 = c.CDLL("libmlx5.so.1", use_errno=True)
RDMA_DRIVER_MLX5 = 1
P, U32, U64, SIZE = c.c_void_p, c.c_uint32, c.c_uint64, c.c_size_t


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


def fails(what, result):
    """A call that gives an errno or -1, or a pointer that is not there."""
    error = c.get_errno() if result in (None, -1) else abs(result)
    say(what, os.strerror(error) if error else "it was executed")


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


def put(buffer, bit, width, value):
    """A field, by the bit that it begins with, as mlx5_ifc.h counts."""
    for index in range(width):
        at = bit + index
        mask = 1 << (7 - at % 8)
        if value >> (width - 1 - index) & 1:
            buffer[at // 8] |= mask
        else:
            buffer[at // 8] &= ~mask & 0xFF


def command(length, opcode, *fields):
    buffer = bytearray(length)
    put(buffer, 0, 16, opcode)
    for field in fields:
        put(buffer, *field)
    return bytes(buffer)


def word(answer, at):
    return struct.unpack_from(">I", answer, at)[0]


context = open_device(sys.argv[1])
fd = c.cast(context, c.POINTER(c.c_int))[66]


def ioctl(object_, method, *attributes):
    """A request as the library makes them, of a method that the library has no call for."""
    body = b"".join(struct.pack("<HHHHQ", id_, length, 1, 0, data) for id_, length, data in attributes)
    head = struct.pack("<HHHHQII", 24 + len(body), object_, method, len(attributes), 0, RDMA_DRIVER_MLX5, 0)
    request = bytearray(head + body)
    fcntl.ioctl(fd, 0xC0181B01, request)
    return request


def memory(size):
    pages = mmap.mmap(-1, size)
    return pages, c.addressof(c.c_char.from_buffer(pages))


general = call(mlx5, "mlx5dv_devx_general_cmd", c.c_int, P, P, SIZE, P, SIZE)
create_ = call(mlx5, "mlx5dv_devx_obj_create", P, P, P, SIZE, P, SIZE)
query_ = call(mlx5, "mlx5dv_devx_obj_query", c.c_int, P, P, SIZE, P, SIZE)
modify_ = call(mlx5, "mlx5dv_devx_obj_modify", c.c_int, P, P, SIZE, P, SIZE)
destroy = call(mlx5, "mlx5dv_devx_obj_destroy", c.c_int, P)


def create(what, request, number_at=8):
    answer = c.create_string_buffer(16)
    made = sure(what, create_(context, request, len(request), answer, 16))
    return made, word(answer, number_at)


def query(what, made, request, room, ask=query_):
    answer = c.create_string_buffer(room)
    result = ask(made, request, len(request), answer, room)
    if result:
        sys.exit(f"{what}: {os.strerror(result)}")
    return answer.raw


def modify(what, made, request):
    answer = c.create_string_buffer(16)
    result = modify_(made, request, len(request), answer, 16)
    say(what, os.strerror(result) if result else "ok")


# What the device can do, its port, and its numbers.
answer = c.create_string_buffer(16 + 4096)
asked = command(16, 0x100, (0x30, 16, 1))
sure("capabilities", general(context, asked, len(asked), answer, len(answer)) == 0)
say("contexts may make objects", answer.raw[16 + 0x463 // 8] & 0x1F)
answer = c.create_string_buffer(16 + 512)
asked = command(16, 0x762)
sure("its port", general(context, asked, len(asked), answer, len(answer)) == 0)
lid = word(answer, 16 + 0x60) >> 16
say("it has a LID", lid != 0)
fails("a command that is not general", general(context, command(16, 0x800), 16, answer, 16))

event_queue = U32()
sure("event queue", call(mlx5, "mlx5dv_devx_query_eqn", c.c_int, P, U32, P)(context, 0, c.byref(event_queue)) == 0)
say("event queue", event_queue.value != 0)
page = U32()
# mlx5: DEVX.DEVX_QUERY_UAR, of contexts whose library does not ask for its pages one by one, as this one does;
# PD.PD_QUERY and DEVICE.QUERY_PORT. Small inputs are in the request.
try:
    ioctl(0x1000, 0x1001, (0x1000, 4, 0), (0x1001, 4, c.addressof(page)))
    say("page of doorbells of the library's", page.value != 0)
except OSError as error:
    say("page of doorbells of the library's", error.strerror)
domain = sure("a protection domain", call(verbs, "ibv_alloc_pd", P, P)(context))
number = U32()
ioctl(1, 0x1000, (0x1000, 0, c.cast(domain, c.POINTER(U32))[2]), (0x1001, 4, c.addressof(number)))
say("number of a protection domain", number.value != 0)
port = c.create_string_buffer(40)
ioctl(0, 0x1000, (0x1000, 4, 1), (0x1001, 40, c.addressof(port)))
say("what the port adds", port.raw.hex())

# A page of doorbells, and memory for queues and their records.
uar = sure("a page of doorbells", call(mlx5, "mlx5dv_devx_alloc_uar", P, P, U32)(context, 1))
register, base = c.cast(uar, c.POINTER(U64))[0], c.cast(uar, c.POINTER(U64))[1]
uar_number = c.cast(uar, c.POINTER(U32))[4]
pages, at = memory(16384)
QUEUE, COMPLETIONS, RECORDS, DATA = 0, 4096, 8192, 12288
register_memory = call(mlx5, "mlx5dv_devx_umem_reg", P, P, P, SIZE, U32)
umem = sure("memory", register_memory(context, at, 16384, 7))
umem_number = c.cast(umem, c.POINTER(U32))[0]
fails("memory that is not there", register_memory(context, 4096, 4096, 7))
region = sure("a region", call(verbs, "ibv_reg_mr", P, P, P, SIZE, c.c_int)(domain, at + DATA, 4096, 1))
key = c.cast(region, c.POINTER(U32))[9]

# A completion queue and a queue pair in that memory: 16 entries, 16 blocks, 16 receives.
for entry in range(16):
    pages[COMPLETIONS + entry * 64 + 63] = 0xF1
CONTEXT = 0x80
request = command(272, 0x400,
    (CONTEXT + 0x6, 1, 1), (CONTEXT + 0x20, 32, umem_number), (CONTEXT + 0x63, 5, 4), (CONTEXT + 0x68, 24, uar_number),
    (CONTEXT + 0xA0, 32, event_queue.value), (CONTEXT + 0x1C0, 64, RECORDS + 64), (0x280, 64, COMPLETIONS),
    (0x2C0, 32, umem_number))
completions, cqn = create("a completion queue", request)
answer = query("completion queue", completions, command(16, 0x402, (0x48, 24, cqn)), 272)
say("completion queue has entries", 1 << (word(answer, 16 + 12) >> 24 & 0x1F))
modify("moderation of events", completions, command(272, 0x403, (0x48, 24, cqn), (0x60, 32, 3), (CONTEXT + 0x84, 12, 5)))
request = command(272, 0x400, (CONTEXT + 0x63, 5, 10), (CONTEXT + 0x68, 24, uar_number),
    (CONTEXT + 0xA0, 32, event_queue.value), (0x280, 64, COMPLETIONS), (0x2C0, 32, umem_number))
fails("a completion queue larger than its memory", create_(context, request, 272, c.create_string_buffer(16), 16))

QPC = 0xC0
request = command(272, 0x500,
    (QPC + 0x13, 2, 3), (QPC + 0x28, 24, number.value), (QPC + 0x49, 4, 4), (QPC + 0x51, 4, 4), (QPC + 0x68, 24, uar_number),
    (QPC + 0x3E8, 24, cqn), (QPC + 0x4E8, 24, cqn), (QPC + 0x500, 64, RECORDS), (QPC + 0x683, 1, 1),
    (QPC + 0x720, 32, umem_number), (0x800, 64, QUEUE), (0x840, 32, umem_number))
pair, qpn = create("a queue pair", request)
asked = command(16, 0x50B, (0x48, 24, qpn))


def state():
    return query("queue pair", pair, asked, 272)[QPC // 8] >> 4


say("queue pair begins in state", state())
modify("too early", pair, command(272, 0x504, (0x48, 24, qpn)))
modify("reset to init", pair, command(272, 0x502, (0x48, 24, qpn), (QPC + 0x13, 2, 3), (QPC + 0x1E8, 8, 1)))
modify("init to ready to receive", pair, command(272, 0x503, (0x48, 24, qpn), (QPC + 0x40, 3, 5),
    (QPC + 0xA8, 24, qpn), (QPC + 0xF0, 16, lid), (QPC + 0x1E8, 8, 1)))
modify("ready to send", pair, command(272, 0x504, (0x48, 24, qpn), (QPC + 0x100, 5, 14), (QPC + 0x38D, 3, 7), (QPC + 0x390, 3, 7)))
say("queue pair is in state", state())

# Events: of the completion queue to a channel, of the queue pair to an eventfd.
channel = sure("an event channel", call(mlx5, "mlx5dv_devx_create_event_channel", P, P, c.c_int)(context, 0))
channel_fd = c.cast(channel, c.POINTER(c.c_int))[0]
subscribe = call(mlx5, "mlx5dv_devx_subscribe_devx_event", c.c_int, P, P, c.c_uint16, P, U64)
fails("events of a completion queue", subscribe(channel, completions, 2, struct.pack("<H", 0), 0xC0FFEE))
fails("events that there are not", subscribe(channel, completions, 2, struct.pack("<H", 0x77), 1))
signal = os.eventfd(0, os.EFD_NONBLOCK)
by_fd = call(mlx5, "mlx5dv_devx_subscribe_devx_event_fd", c.c_int, P, c.c_int, P, c.c_uint16)
fails("events of a queue pair", by_fd(channel, signal, pair, 0x11))

# A message to itself: a receive, the arming of completions, a send, doorbells.
def record(at_, value):
    struct.pack_into(">I", pages, RECORDS + at_, value)


def ring(address, first, second):
    U64.from_address(address).value = struct.unpack("<Q", struct.pack(">II", first, second))[0]


struct.pack_into(">IIQ", pages, QUEUE, 256, key, at + DATA)
record(0, 1)
ring(base + 0x20, 0, cqn)
text = b"made by the program itself"
block = QUEUE + 16 * 16
# A send with a completion; its data are in the request.
struct.pack_into(">IIII", pages, block, 0x0A, qpn << 8 | 3, 8, 0)
struct.pack_into(">I", pages, block + 16, 1 << 31 | len(text))
pages[block + 20 : block + 20 + len(text)] = text
record(4, 1)
ring(register, 0x0A, qpn << 8 | 3)


def completed(entry):
    for _ in range(10_000):
        if pages[COMPLETIONS + entry * 64 + 63] != 0xF1:
            return
        time.sleep(0.01)


def readable(descriptor):
    return bool(select.select([descriptor], [], [])[0])


say("event came", readable(channel_fd))
answer = c.create_string_buffer(256)
size = call(mlx5, "mlx5dv_devx_get_event", c.c_ssize_t, P, P, SIZE)(channel, answer, 256)
say("event is of", hex(struct.unpack_from("<Q", answer, 0)[0]))
# One of the receive, and one of the send, which comes when the answer has come.
completed(1)
say("completions", sorted(pages[COMPLETIONS + entry * 64 + 63] >> 4 for entry in range(2)))
say("message", pages[DATA : DATA + len(text)].decode())

# Memory on the device: the library's copies, a region, and a message out of that memory.
allocate = call(mlx5, "mlx5dv_alloc_dm", P, P, P, P)
dm = sure("memory on the device", allocate(context, struct.pack("<QII", 4096, 0, 0), struct.pack("<IIQ", 0, 0, 0)))
dm_handle = c.cast(dm, c.POINTER(U32))[7]
Copy = c.CFUNCTYPE(c.c_int, P, U64, P, SIZE)
other = b"from the device's own memory"
fails("copy to the device", Copy(c.cast(dm, c.POINTER(U64))[1])(dm, 64, other, len(other)))
offset, size, dm_page = U64(), U64(), c.c_uint16()
# mlx5: DM.DM_QUERY; MR.DM_MR_REG, of what begins 64 bytes later.
ioctl(14, 0x1001, (0x1000, 0, dm_handle), (0x1001, 8, c.addressof(offset)), (0x1002, 2, c.addressof(dm_page)),
      (0x1003, 8, c.addressof(size)))
say("memory on the device", (offset.value, size.value))
dm_key, remote = U32(), U32()
made = ioctl(7, 0, (0, 0, 0), (1, 8, 64), (2, 8, 1024), (3, 0, c.cast(domain, c.POINTER(U32))[2]), (4, 8, 1 | 1 << 5),
             (5, 0, dm_handle), (6, 4, c.addressof(dm_key)), (7, 4, c.addressof(remote)))
dm_region = struct.unpack_from("<Q", made, 24 + 8)[0]
struct.pack_into(">IIQ", pages, QUEUE + 16, 256, key, at + DATA)
record(0, 2)
struct.pack_into(">IIIIIIQ", pages, block + 64, 0x10A, qpn << 8 | 2, 8, 0, len(other), dm_key.value, 0)
record(4, 2)
ring(register, 0x10A, qpn << 8 | 2)
completed(3)
say("completions", sorted(pages[COMPLETIONS + entry * 64 + 63] >> 4 for entry in range(4)))
say("message", pages[DATA : DATA + len(other)].decode())
ioctl(7, 1, (0, 0, dm_region))
ioctl(14, 1, (0, 0, dm_handle))

# A domain of XRC's: OPEN_XRCD and XRCD.XRCD_DESTROY.
xrcd = U32()
opened = struct.pack("<QiI", 0, -1, os.O_CREAT)
held = c.create_string_buffer(opened)
ioctl(0, 0, (0, 16, c.addressof(held)), (1, 4, c.addressof(xrcd)), (2, 8, 37))
ioctl(10, 0, (0, 0, xrcd.value))
say("domain of XRC's")

# Commands that are not waited for.
done = sure("a channel of commands", call(mlx5, "mlx5dv_devx_create_cmd_comp", P, P)(context))
ask_later = call(mlx5, "mlx5dv_devx_obj_query_async", c.c_int, P, P, SIZE, SIZE, U64, P)
fails("a command that is not waited for", ask_later(pair, asked, len(asked), 272, 77, done))
say("answer came", readable(c.cast(done, c.POINTER(c.c_int))[0]))
answer = c.create_string_buffer(8 + 272)
fails("its answer", call(mlx5, "mlx5dv_devx_get_async_cmd_comp", c.c_int, P, P, SIZE)(done, answer, len(answer)))
say("answer is of", struct.unpack_from("<Q", answer, 0)[0])
say("answer tells the state", answer.raw[8 + QPC // 8] >> 4)

# General objects and rates.
request = command(80, 0xA00, (0x30, 16, 0xB), (0x80 + 0x60, 16, 0x1234))
option, option_number = create("a general object", request)
answer = query("general object", option, command(16, 0xA02, (0x30, 16, 0xB), (0x40, 32, option_number)), 80)
say("general object says", hex(word(answer, 16 + 12)))
request = command(80, 0xA00, (0x30, 16, 0x7777))
fails("a general object of no type", create_(context, request, 80, c.create_string_buffer(16), 16))
pace = call(mlx5, "mlx5dv_pp_alloc", P, P, SIZE, P, U32)
rate = sure("a rate", pace(context, 48, struct.pack(">I", 5000).ljust(48, b"\0"), 1))
fails("a rate that is too high", pace(context, 48, b"\xff" * 4 + bytes(44), 0))

# Ends, first those that are refused.
fails("memory in use", call(mlx5, "mlx5dv_devx_umem_dereg", c.c_int, P)(umem))
call(mlx5, "mlx5dv_pp_free", None, P)(rate)
for what, made in [("general object", option), ("queue pair", pair), ("completion queue", completions)]:
    fails(f"end of a {what}", destroy(made))
fails("end of memory", call(mlx5, "mlx5dv_devx_umem_dereg", c.c_int, P)(umem))
call(mlx5, "mlx5dv_devx_destroy_cmd_comp", None, P)(done)
call(mlx5, "mlx5dv_devx_destroy_event_channel", None, P)(channel)
call(mlx5, "mlx5dv_devx_free_uar", None, P)(uar)
fails("end of a region", call(verbs, "ibv_dereg_mr", c.c_int, P)(region))
fails("end of a protection domain", call(verbs, "ibv_dealloc_pd", c.c_int, P)(domain))
fails("end", call(verbs, "ibv_close_device", c.c_int, P)(context))
