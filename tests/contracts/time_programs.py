"""Programs about time and threads for the runtimes' contract suite, importable by a new process."""

from __future__ import annotations

import threading
import time

from contracts.programs import SECRET, pause

PATIENCE = 120.0  # seconds: never decides unless something hangs


async def look_at_the_clock(net, seconds):
    before = net.elapsed()
    await pause(net, seconds)
    net.report("now")
    return (before, net.elapsed())


def add(*numbers):
    return (sum(numbers), threading.get_ident())


def complain():
    raise ValueError(SECRET)


async def call_in_thread(net):
    """The sum, whether another thread computed it, and what a function raised."""
    total, thread = await net.in_thread(add, 1, 2, 3)
    try:
        await net.in_thread(complain)
    except ValueError as error:
        return (total, thread == threading.get_ident(), str(error))


async def fail_in_thread(net, frm):
    await net.recv(frm, "start")
    await net.in_thread(complain)


async def hear_while_in_thread(net, frm):
    """Its thread waits for what its loop hears: only a loop that goes on can end this."""
    heard = threading.Event()

    async def listen():
        await net.recv(frm, "news")
        heard.set()

    net.spawn(listen())
    return await net.in_thread(heard.wait, PATIENCE)


async def say_news(net, to):
    await net.send(to, "news", None)


async def meet_in_threads(net, count):
    """So many functions that wait for each other: only threads that run at once can end this."""
    barrier = threading.Barrier(count, timeout=PATIENCE)
    meetings = [net.spawn(net.in_thread(barrier.wait)) for _ in range(count)]
    return tuple(sorted([await meeting for meeting in meetings]))


async def leave_a_thread(net):
    started = threading.Event()

    def sleep():
        started.set()
        time.sleep(3600)

    net.spawn(net.in_thread(sleep))
    await net.in_thread(started.wait, PATIENCE)
    return "ended"


async def work_in_lanes(net, nonzeros):
    """Three pieces of work, two of them in one lane; returns which ended when."""
    ended = []

    async def work(name, lane, times):
        await net.work(times * nonzeros, lane)
        ended.append((name, net.elapsed()))

    tasks = [
        net.spawn(work(*each)) for each in (("one", "forward", 10), ("two", "forward", 10), ("three", "backward", 1))
    ]
    for task in tasks:
        await task
    return tuple(ended)


async def work_then_send(net, to, nonzeros):
    await net.send(to, "before", net.elapsed())
    await net.work(nonzeros)
    await net.send(to, "after", net.elapsed())


async def take_both(net, frm):
    return (await net.recv(frm, "before"), await net.recv(frm, "after"))


async def work_both_lanes(net, to, nonzeros):
    """The same work in both lanes at once, then a message."""
    one, other = (net.spawn(net.work(nonzeros, lane)) for lane in ("forward", "backward"))
    await one
    await other
    await net.send(to, "done", None)


async def wait_for_it(net, frm):
    await net.recv(frm, "done")


async def work_then_wait(net, frm, nonzeros):
    await net.work(nonzeros)
    await net.recv(frm, "done")


async def compute(net, seconds):
    """The processor is busy for so long."""
    began = time.process_time()
    while time.process_time() - began < seconds:
        pass
