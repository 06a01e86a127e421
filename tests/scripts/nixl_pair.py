"""One of two agents of NIXL, in programs of their own, that move memory. Who receives compares every byte.

    nixl_pair.py server|client PORT FOLDER BACKEND LENGTH ROUNDS

The client writes its memory into the server's and reads it from there. The programs exchange the agents' metadata,
and take turns, by lines of JSON at a TCP port of the loopback interface.

FOLDER has the unpacked wheel. The wheel imports torch for its types alone: a module with those names stands in.
"""
import base64
import json
import socket
import sys
import types

role, port, folder, backend = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
length, rounds = int(sys.argv[5]), int(sys.argv[6])
sys.path.insert(0, folder)
torch = types.ModuleType("torch")
torch.Tensor, torch.dtype, torch.device = type("Tensor", (), {}), type("dtype", (), {}), type("device", (), {})
sys.modules["torch"] = torch

import numpy

try:
    from nixl._api import nixl_agent, nixl_agent_config
except ImportError:
    from nixl_cu12._api import nixl_agent, nixl_agent_config


agent = nixl_agent(role, nixl_agent_config(backends=[backend]))
memory = numpy.zeros(length, dtype=numpy.uint8)
place = (memory.ctypes.data, length, 0)
registered = agent.register_memory([(*place, "")], "DRAM")


def pattern(number, operation):
    return ((numpy.arange(length) * 31 + number + len(operation)) % 251).astype(numpy.uint8)


def compare(number, operation):
    if not (memory == pattern(number, operation)).all():
        sys.exit(f"{operation}: other bytes came")


def say(stream, **words):
    stream.write(json.dumps(words) + "\n")
    stream.flush()


def hear(stream):
    line = stream.readline()
    if not line:
        sys.exit("the other program has ended")
    return json.loads(line)


def serve(stream):
    metadata = base64.b64encode(agent.get_agent_metadata()).decode()
    say(stream, name=role, metadata=metadata, place=place)
    while "end" not in (asked := hear(stream)):
        number, operation = asked["number"], asked["operation"]
        if asked["do"] == "compare":
            compare(number, operation)
        else:
            # A byte that is right before it has come would show nothing.
            memory[:] = pattern(number, operation) if operation == "READ" else 255
        say(stream, done=True)


def move(stream):
    other = hear(stream)
    agent.add_remote_agent(base64.b64decode(other["metadata"]))
    here = agent.get_xfer_descs([place], "DRAM")
    there = agent.get_xfer_descs([tuple(other["place"])], "DRAM")
    for number in range(rounds):
        for operation in ("WRITE", "READ"):
            memory[:] = pattern(number, operation) if operation == "WRITE" else 255
            say(stream, do="prepare", number=number, operation=operation)
            hear(stream)
            moved = agent.initialize_xfer(operation, here, there, other["name"], b"")
            agent.transfer(moved)
            while (state := agent.check_xfer_state(moved)) != "DONE":
                if state == "ERR":
                    sys.exit(f"{operation}: {state}")
            agent.release_xfer_handle(moved)
            if operation == "WRITE":
                say(stream, do="compare", number=number, operation=operation)
                hear(stream)
            else:
                compare(number, operation)
    agent.remove_remote_agent(other["name"])
    say(stream, end=True)


if role == "server":
    with socket.create_server(("127.0.0.1", port)) as listener:
        peer = listener.accept()[0]
else:
    peer = socket.create_connection(("127.0.0.1", port))
with peer, peer.makefile("rw") as stream:
    serve(stream) if role == "server" else move(stream)
agent.deregister_memory(registered)
print(f"NIXL: {rounds} times {length} bytes written and read by {backend}, every byte compared")
