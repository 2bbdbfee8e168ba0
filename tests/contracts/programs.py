"""Programs for the runtimes' contract suite, importable by a new process."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import numpy as np

from colonnade import errors
from colonnade.runtimes import frames

SECRET = "patient 4711 is ill"


def every_value():
    """At least one value of every kind that a message can hold."""
    deep = ()
    for _ in range(25):  # 26 deep, and it travels inside a few tuples more
        deep = (deep,)
    grid = np.arange(24.0).reshape(4, 6)
    numbers = [0, 1, 100]
    arrays = [np.array(numbers, dtype=dtype) for dtype in ("bool", "float32", "float64")]
    arrays += [np.array(numbers, dtype=f"{kind}{bits}") for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
    arrays += [np.array(2.5), np.empty((0, 3)), grid, grid.T, grid[::2, 1::2], grid.astype(">f8"), np.zeros((1,) * 8)]
    return (
        *(None, True, False, 0, -1, 2**63 - 1, -(2**63), 0.0, -0.0, 5e-324, float("inf"), float("nan")),
        *("", "plain", "žluťoučký kůň 🐎", b"", b"\x00\xff", (), (1, ("two", (3.0, None), b"4")), deep),
        *(np.float64(0.1), np.float32(0.1), np.int8(-3), np.bool_(True), np.str_("text")),
        *arrays,
        tuple(arrays),
    )


async def pause(net, seconds, *, deaf=False):
    """Let time pass, whichever clock it is; in a process of its own, a deaf party doesn't even read meanwhile."""
    await net.work(seconds * 5e8)  # at the simulation's 2e-9 seconds for each
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return  # under the virtual clock
    if deaf:
        time.sleep(seconds)
    await asyncio.sleep(0 if deaf else seconds)


# -- what arrives ------------------------------------------------------------------------------------------------------


async def send_every_value(net, to):
    for value in every_value():
        await net.send(to, "value", value)


async def take_every_value(net, frm):
    values = [await net.recv(frm, "value") for _ in every_value()]
    for value in values:
        if isinstance(value, np.ndarray):
            kept = value.copy()
            value[...] = 0  # a receiver may do with it what it likes
            value[...] = kept
    return tuple(values)


async def send_interleaved(net, to, count):
    for i in range(count):
        for tag in ("one", "two", "three"):
            await net.send(to, tag, (tag, i))


async def take_by_tag(net, frms, count):
    order = [(frm, tag) for tag in ("three", "one", "two") for frm in reversed(frms) for _ in range(count)]
    return tuple([await net.recv(frm, tag) for frm, tag in order])


async def send_then_change(net, others):
    array, inside = np.ones(4), (np.ones(2), "beside")
    for other in others:
        await net.send(other, "array", array)
        await net.send(other, "inside", inside)
    array[:] = 7.0
    inside[0][:] = 7.0
    for other in others:
        await net.send(other, "array", array)
    for other in others:
        await net.recv(other, "changed")
    return array


async def take_and_change(net, frm, addend):
    first, (inside, _) = await net.recv(frm, "array"), await net.recv(frm, "inside")
    first += addend
    second = await net.recv(frm, "array")
    second *= addend
    await net.send(frm, "changed", None)
    return (first, inside, second)


async def tree_sum(net, vector):
    """Up a binary tree and down again: everybody ends with the sum."""
    at = net.names.index(net.me)
    below = [net.names[i] for i in (2 * at + 1, 2 * at + 2) if i < len(net.names)]
    total = vector.copy()
    for child in below:
        total += await net.recv(child, "up")
    net.traffic.round()
    if at:
        above = net.names[(at - 1) // 2]
        await net.send(above, "up", total)
        total = await net.recv(above, "down")
    net.traffic.round()
    for child in below:
        await net.send(child, "down", total)
    return total


async def all_to_all(net, rounds):
    """Everybody tells everybody; each one's text depends on all that it heard before."""
    heard = net.me
    others = [name for name in net.names if name != net.me]
    for number in range(rounds):
        for name in others:
            await net.send(name, f"round {number}", (number, heard))
        replies = [await net.recv(name, f"round {number}") for name in others]
        net.traffic.round()
        heard = f"{net.me}({','.join(text[:20] for _, text in replies)})"
    return heard


async def follow(net, script):
    """Do this party's part of a list of (sender, receiver, tag, value); return what arrived."""
    taken = []
    for sender, receiver, tag, value in script:
        if net.me == sender:
            await net.send(receiver, tag, value)
        elif net.me == receiver:
            taken.append(await net.recv(sender, tag))
            await net.work(1000)
            net.traffic.round()
    return tuple(taken)


async def say_and_leave(net, to, what):
    await net.send(to, "last word", what)


async def busy_then_read(net, frm):
    """Be deaf while the other ends, write to it, and only then read what it had said."""
    time.sleep(0.5)
    for i in range(20):
        await net.send(frm, "too late", np.zeros(1000) + i)
    return await net.recv(frm, "last word")


# -- within a party ----------------------------------------------------------------------------------------------------


async def hub(net, count):
    """One listener for each other party, all at once."""

    async def listen(frm):
        heard = []
        for _ in range(count):
            heard.append(await net.recv(frm, "count"))
            await net.send(frm, "thanks", heard[-1])
        return tuple(heard)

    listeners = [net.spawn(listen(name)) for name in net.names if name != net.me]
    return tuple([await listener for listener in listeners])


async def spoke(net, to, numbers):
    for number in numbers:
        await net.send(to, "count", number)
        assert await net.recv(to, "thanks") == number


async def two_waiters(net, frm):
    async def wait():
        return await net.recv(frm, "number")

    first, second = net.spawn(wait()), net.spawn(wait())
    await pause(net, 0.01)  # both wait now
    await net.send(frm, "go", None)
    return (await second, await first, await wait())


async def numbers(net, to):
    await net.recv(to, "go")
    for i in range(3):
        await net.send(to, "number", i)


async def awaited_twice(net):
    async def slow():
        await pause(net, 0.01)
        return "once"

    task = net.spawn(slow())

    async def wait():
        return await task

    waiters = [net.spawn(wait()), net.spawn(wait())]
    return (await task, *[await waiter for waiter in waiters], await task)


async def spawned_raises(net, frm, caught):
    """Main waits for long, or waits for the spawned one and swallows its error: the party fails either way."""

    async def bad():
        await net.recv(frm, "start")
        raise errors.DataError(SECRET)

    task = net.spawn(bad())
    if caught:
        try:
            await task
        except errors.DataError:
            return "swallowed"
    return await net.recv(frm, "never", patient=True)


async def start_then_wait(net, other):
    await net.send(other, "start", None)
    await net.recv(other, "result")


async def leaves_listener(net, other):
    """A listener that is still waiting does not keep its party from ending."""

    async def listen():
        try:
            await net.recv(other, "never", patient=True)
        finally:
            raise ValueError("a bad loser")

    net.spawn(listen())
    await net.recv(other, "end")
    await net.send(other, "ended", None)
    return "ended"


async def end_the_other(net, other):
    await net.send(other, "end", None)
    await net.recv(other, "ended")


async def reporter(net, count):
    array = np.zeros(3)
    for i in range(count):
        array[:] = i
        net.report((i, array))
        await pause(net, 0.01)


async def report_list(net):
    net.report([1, 2])


# -- failures ----------------------------------------------------------------------------------------------------------


async def listen_then_raise(net, frm, kind):
    await net.recv(frm, "begin")
    if kind == "zero":
        return 1 // 0
    raise getattr(errors, kind)(SECRET)


async def begin_then_wait(net, other):
    await net.send(other, "begin", None)
    await net.recv(other, "result")


async def wait_for(net, frm, step):
    """Wait with a deadline."""
    return await net.recv(frm, step)


async def wait_patiently(net, frm, step):
    return await net.recv(frm, step, patient=True)


async def pass_on(net, frm, step, to, next_step):
    await net.send(to, next_step, await net.recv(frm, step))


async def raise_class(net, kind):
    raise getattr(errors, kind)(f"{kind} in words")


async def return_now(net):
    return "early"


async def return_late(net):
    await pause(net, 0.5)


async def late_wait(net, frm, step):
    """Wait for a party that has long said goodbye."""
    await pause(net, 0.5)
    return await net.recv(frm, step)


async def sleep_on(net, seconds):
    """Alive for the operating system, dead to the others."""
    await pause(net, seconds, deaf=True)


async def misuse(net, other):
    """Every call that names a wrong party; returns the sentences."""
    said = []
    for call in (
        lambda: net.send("nobody", "step", 1),
        lambda: net.send(net.me, "step", 1),
        lambda: net.recv("nobody", "step"),
        lambda: net.recv(net.me, "step"),
        lambda: net.send(other, "x" * 200, 1),
    ):
        try:
            await call()
        except errors.OptionError as error:
            said.append(str(error))
    await net.send(other, "count", len(said))
    return tuple(said)


UNSENDABLE = ([1], {"a": 1}, {1}, object(), 1j, 2**63, "\ud800", np.array([1j]), np.array(["a"]), (1, [2]))


async def send_the_unsendable(net, to):
    """All are refused here, and the next good message still arrives."""
    refused = 0
    for value in UNSENDABLE:
        try:
            await net.send(to, "value", value)
        except errors.ProtocolError:
            refused += 1
    await net.send(to, "value", "good")
    return refused


async def send_list(net, to):
    await net.send(to, "value", [1, 2])


async def return_list(net):
    return [1, 2]


async def send_too_much(net, to):
    net.longest = 1000
    await net.send(to, "value", bytes(1000 - 9 - len("value") - frames.FRAME_OVERHEAD))
    try:
        await net.send(to, "value", bytes(1001 - 9 - len("value") - frames.FRAME_OVERHEAD))
    except errors.OversizedMessage:
        await net.send(to, "value", b"refused")
        raise


async def take_two(net, frm):
    return len(await net.recv(frm, "value")), await net.recv(frm, "value")


# -- in processes only -------------------------------------------------------------------------------------------------


async def pid_then_signal(net, number, frm):
    """Tell the starter who this is, wait for the others to be there, and let a signal strike."""
    net.report(os.getpid())
    await net.recv(frm, "ready")
    os.kill(os.getpid(), number)
    await asyncio.sleep(3600)


async def pid_then_wait(net, other, say_ready):
    net.report(os.getpid())
    if say_ready:
        await net.send(other, "ready", None)
    await net.recv(other, "result")


async def pid_then_sleep(net):
    net.report(os.getpid())
    time.sleep(3600)


async def pid_then_patience(net, frm):
    net.report(os.getpid())
    await net.recv(frm, "never", patient=True)


async def report_on_signal(net):
    """Report much once the starter can't listen any more, and then nothing for long."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, lambda: net.report(bytes(10_000)))
    net.report(os.getpid())
    await asyncio.sleep(3600)


async def killed_at_once(net):
    os.kill(os.getpid(), signal.SIGKILL)


class Programs:
    """Programs that are not at the top level of a module."""

    @staticmethod
    async def static(net):
        return "static"

    async def bound(self, net):
        return "bound"


# -- waits that may be in vain ---------------------------------------------------------------------------------------


async def wait_within(net, frm):
    """Nothing yet; then what comes late, and nothing after it."""
    first = await net.recv_within(frm, "news", 0)
    second = await net.recv_within(frm, "news", 0.2)
    await net.send(frm, "go", None)
    third = await net.recv_within(frm, "news", 20)
    return (first, second, third, await net.recv_within(frm, "news", 20))


async def speak_when_told(net, to):
    await net.recv(to, "go")
    await net.send(to, "news", 7)


async def spare_the_other(net, other, friend):
    """Goes on with a friend, though somebody dies."""
    net.spare([other])
    lost = await net.recv_within(other, "news", 20)
    await net.send(friend, "still here", 1)
    return (lost, await net.recv(friend, "still here"))


async def go_on(net, other, friend):
    net.spare([other])
    await net.recv(friend, "still here")
    await net.send(friend, "still here", 2)
    return "done"
