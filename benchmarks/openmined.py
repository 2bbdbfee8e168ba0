"""The opponent of the alignment: openmined-psi's whole protocol, in an interpreter that has it. Prints seconds.

python openmined.py COUNT one      both sides in one process, one after another, as its own examples do
python openmined.py COUNT two      each side in a process of its own, beside each other where the protocol lets them
"""

from __future__ import annotations

import os
import sys
import time
from multiprocessing.connection import Connection, Pipe

import private_set_intersection.python as psi


def ids(count: int, start: int) -> list[str]:
    return [f"person {k}" for k in range(start, start + count)]


def one(count: int) -> float:
    client, server = psi.client.CreateWithNewKey(True), psi.server.CreateWithNewKey(True)
    mine, theirs, began = ids(count, 0), ids(count, count // 2), time.perf_counter()
    setup = server.CreateSetupMessage(0.001, count, theirs, psi.DataStructure.RAW)
    response = server.ProcessRequest(client.CreateRequest(mine))
    common = client.GetIntersection(setup, response)
    seconds = time.perf_counter() - began
    if len(common) != count - count // 2:
        raise SystemExit("openmined-psi found a wrong intersection")
    return seconds


def serve(line: Connection, count: int) -> None:
    server, theirs = psi.server.CreateWithNewKey(True), ids(count, count // 2)
    line.send_bytes(b"ready")
    setup = server.CreateSetupMessage(0.001, count, theirs, psi.DataStructure.RAW)
    request = psi.Request()
    request.ParseFromString(line.recv_bytes())
    line.send_bytes(server.ProcessRequest(request).SerializeToString())
    line.send_bytes(setup.SerializeToString())


def two(count: int) -> float:
    ours, theirs = Pipe()
    if os.fork() == 0:
        serve(theirs, count)
        os._exit(0)
    client, mine = psi.client.CreateWithNewKey(True), ids(count, 0)
    ours.recv_bytes()
    began = time.perf_counter()
    ours.send_bytes(client.CreateRequest(mine).SerializeToString())
    response, setup = psi.Response(), psi.ServerSetup()
    response.ParseFromString(ours.recv_bytes())
    setup.ParseFromString(ours.recv_bytes())
    common = client.GetIntersection(setup, response)
    seconds = time.perf_counter() - began
    if len(common) != count - count // 2:
        raise SystemExit("openmined-psi found a wrong intersection")
    return seconds


if __name__ == "__main__":
    print({"one": one, "two": two}[sys.argv[2]](int(sys.argv[1])))
