"""The opponent of the alignment by oblivious transfer: PSI of SecretFlow's SPU, in an interpreter that has it.

python spu_psi.py COUNT ecdh|kkrt|rr22      two processes over loopback, both learn the result; prints seconds and CPU
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import time
from pathlib import Path

import spu.libspu.link as link
import spu.psi as psi

PROTOCOLS = {"ecdh": "PROTOCOL_ECDH", "kkrt": "PROTOCOL_KKRT", "rr22": "PROTOCOL_RR22"}


def ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    found = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return found


def take_part(rank: int, at: list[int], folder: Path, count: int, how: str) -> None:
    lines = link.Desc()
    for k, port in enumerate(at):
        lines.add_party(f"p{k}", f"127.0.0.1:{port}")
    protocol = psi.PsiProtocolConfig(
        protocol=getattr(psi.PsiProtocol, PROTOCOLS[how]),
        broadcast_result=True,
        ecdh_params=psi.EcdhParams(curve=psi.EllipticCurveType.CURVE_FOURQ),
    )
    asked = psi.PsiExecuteConfig(
        protocol_conf=protocol,
        input_params=psi.InputParams(path=str(folder / f"{rank}.csv"), selected_keys=["id"], keys_unique=True),
        output_params=psi.OutputParams(path=str(folder / f"{rank}.out"), disable_alignment=True),
    )
    report = psi.psi_execute(asked, link.create_brpc(lines, rank))
    if report.intersection_count != count - count // 2:
        raise SystemExit("SPU found a wrong intersection")


def main(count: int, how: str) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for rank, start in enumerate((0, count // 2)):
            rows = "".join(f"person {k}\n" for k in range(start, start + count))
            (folder / f"{rank}.csv").write_text("id\n" + rows)
        at, began, children = ports(2), time.perf_counter(), []
        for rank in range(2):
            if not (child := os.fork()):
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                take_part(rank, at, folder, count, how)
                os._exit(0)
            children.append(child)
        if any(os.waitpid(child, 0)[1] for child in children):
            raise SystemExit("SPU failed")
        used = os.times()
        print(time.perf_counter() - began, used.children_user + used.children_system)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
