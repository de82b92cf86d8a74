"""A rank waits for an answer of a server."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
gradient = torch.ones(1000)
for step in range(200):
    if rank == 1 and step == 30:
        import socket

        server = socket.create_server(("127.0.0.1", 0))
        client = socket.create_connection(server.getsockname())
        print("hang", flush=True)
        client.recv(1)  # hangs
    dist.all_reduce(gradient)
    time.sleep(0.05)
