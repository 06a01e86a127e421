"""Two agents of NIXL move memory by UCX, and every byte is compared.

    nixl_pair.py FOLDER LENGTH ROUNDS

FOLDER has the unpacked wheel. The wheel imports torch for its types alone: a module with those names stands in.
"""
import sys
import time
import types

folder, length, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sys.path.insert(0, folder)
torch = types.ModuleType("torch")
torch.Tensor, torch.dtype, torch.device = type("Tensor", (), {}), type("dtype", (), {}), type("device", (), {})
sys.modules["torch"] = torch

import numpy

try:
    from nixl._api import nixl_agent, nixl_agent_config
except ImportError:
    from nixl_cu12._api import nixl_agent, nixl_agent_config

LIMIT = 60


class Agent:
    def __init__(self, name):
        self.name = name
        self.agent = nixl_agent(name, nixl_agent_config(backends=["UCX"]))
        self.memory = numpy.zeros(length, dtype=numpy.uint8)
        place = [(self.memory.ctypes.data, length, 0)]
        self.registered = self.agent.register_memory([(*place[0], "")], "DRAM")
        self.pieces = self.agent.get_xfer_descs(place, "DRAM")


here, there = Agent("here"), Agent("there")
here.agent.add_remote_agent(there.agent.get_agent_metadata())
for number in range(rounds):
    for operation in ("WRITE", "READ"):
        source, target = (here, there) if operation == "WRITE" else (there, here)
        source.memory[:] = (numpy.arange(length) * 31 + number + len(operation)) % 251
        target.memory[:] = 0
        move = here.agent.initialize_xfer(operation, here.pieces, there.pieces, there.name, b"")
        here.agent.transfer(move)
        end = time.monotonic() + LIMIT
        while (state := here.agent.check_xfer_state(move)) != "DONE":
            if state == "ERR" or time.monotonic() > end:
                sys.exit(f"{operation}: {state}")
        here.agent.release_xfer_handle(move)
        if not (here.memory == there.memory).all():
            sys.exit(f"{operation}: other bytes came")
print(f"NIXL: {rounds} times {length} bytes written and read, every byte compared")
