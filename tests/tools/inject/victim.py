# SPDX-License-Identifier: Apache-2.0
"""victim.py KIND SECONDS [PATH]: runs for so long, checks itself, and prints "ready PID" first and its result last.

What a kind checks is said at its function. Ends with status 0 only when nothing was disturbed.
"""
import ctypes
import errno
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

KIND, SECONDS, PATH = sys.argv[1], float(sys.argv[2]), (sys.argv[3:] + [""])[0]
libc = ctypes.CDLL(None, use_errno=True)


def ends(seconds=None):
    end = time.monotonic() + (seconds or SECONDS)
    return lambda: time.monotonic() < end


class Timespec(ctypes.Structure):
    _fields_ = [("s", ctypes.c_long), ("ns", ctypes.c_long)]


def wait_ms(call, *arguments):
    """A call of libc's that waits; whether it was interrupted, which C programs would see."""
    return call(*arguments) == -1 and ctypes.get_errno() == errno.EINTR


def waits():
    """Every kind of waiting call, in a thread each and in the main one; none is interrupted or shorter."""
    reading, _ = os.pipe()
    epoll = select.epoll()
    epoll.register(reading, select.EPOLLIN)
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    listening.settimeout(0.03)
    semaphore = ctypes.create_string_buffer(64)
    libc.sem_init(semaphore, 0, 0)
    signals = struct.pack("Q", 1 << (signal.SIGUSR2 - 1)).ljust(128, b"\0")
    events = ctypes.create_string_buffer(12)
    fds = struct.pack("ihh", reading, select.POLLIN, 0)
    wait = Timespec(0, 30_000_000)

    def sem_timedwait():
        now = time.time() + 0.03
        return wait_ms(libc.sem_timedwait, semaphore, ctypes.byref(Timespec(int(now), int(now % 1 * 1e9))))

    def accept():
        try:
            listening.accept()
        except socket.timeout:
            return False

    def child():
        process = subprocess.Popen(["sleep", "0.03"])
        status = ctypes.c_int()
        return wait_ms(libc.waitpid, process.pid, ctypes.byref(status), 0)

    kinds = {
        "sleep": lambda: time.sleep(0.03), "lock": lambda: threading.Lock().acquire() and lock.acquire(timeout=0.03),
        "nanosleep": lambda: wait_ms(libc.nanosleep, ctypes.byref(wait), None),
        "epoll_wait": lambda: wait_ms(libc.epoll_wait, epoll.fileno(), events, 1, 30),
        "poll": lambda: wait_ms(libc.poll, fds, 1, 30), "sem_timedwait": sem_timedwait,
        "sigtimedwait": lambda: wait_ms(libc.sigtimedwait, signals, None, ctypes.byref(wait)),
        "select": lambda: bool(select.select([reading], [], [], 0.03)[0]), "accept": accept, "waitpid": child,
    }
    lock = threading.Lock()
    lock.acquire()
    bad = []
    rounds = dict.fromkeys(kinds, 0)

    def run(kind):
        goes_on = ends()
        while goes_on():
            began = time.monotonic()
            if kinds[kind]() is True or time.monotonic() - began < 0.025:
                bad.append(kind)
            rounds[kind] += 1
    threads = [threading.Thread(target=run, args=(kind,)) for kind in kinds if kind != "sleep"]
    for thread in threads:
        thread.start()
    run("sleep")
    for thread in threads:
        thread.join()
    return f"interrupted: {sorted(set(bad))}", not bad and all(rounds.values())


def sleeps():
    """A job that sleeps between pieces of arithmetic: the sum is a twin's, and no sleep fails or is short."""
    total, goes_on, short = 1.0, ends(), 0
    for i in range(100_000):
        began = time.monotonic()
        time.sleep(0.002)
        short += time.monotonic() - began < 0.002
        total = total * 1.0000001 + i
        if not goes_on():
            break
    twin = 1.0
    for k in range(i + 1):
        twin = twin * 1.0000001 + k
    return f"short: {short}", short == 0 and total == twin


def computes():
    """Python alone, without any call that gives the GIL back."""
    x, end = 0, time.monotonic() + SECONDS
    while time.monotonic() < end:
        for i in range(1000):
            x += i
    return "computed", True


def registers():
    """Holds values in all vector registers, masks, the x87 stack, control words and the red zone."""
    spin = ctypes.PyDLL(PATH).nanwatch_spin  # which keeps the GIL
    goes_on, bad, rounds = ends(), 0, 0
    while goes_on():
        bad |= spin(ctypes.c_long(300))
        rounds += 1
    return f"bad registers: {bad} in {rounds}", bad == 0 and rounds > 0


def signals():
    """Computes and sleeps while a timer fires each millisecond, children end, and queued signals keep their order."""
    fired = [0, 0]
    signal.signal(signal.SIGALRM, lambda *_: fired.__setitem__(0, fired[0] + 1))
    signal.signal(signal.SIGCHLD, lambda *_: fired.__setitem__(1, fired[1] + 1))
    queued = signal.SIGRTMIN + 3
    signal.pthread_sigmask(signal.SIG_BLOCK, [queued])
    goes_on, got = ends(), []
    done = threading.Event()

    def take():
        mask = struct.pack("Q", 1 << (queued - 1)).ljust(128, b"\0")
        info = ctypes.create_string_buffer(128)
        wait = Timespec(0, 50_000_000)
        while True:
            if libc.sigtimedwait(mask, info, ctypes.byref(wait)) == queued:
                got.append(struct.unpack_from("i", info, 24)[0])
            elif done.is_set() and ctypes.get_errno() == errno.EAGAIN:  # not because a child has ended meanwhile
                return
    taker = threading.Thread(target=take)
    taker.start()
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    sent, children, x = 0, [], 0
    while goes_on():
        while libc.sigqueue(os.getpid(), queued, ctypes.c_void_p(sent)) != 0:
            pass
        sent += 1
        if sent % 50 == 1:
            children.append(subprocess.Popen(["true"]))
        for i in range(3000):
            x += i
    signal.setitimer(signal.ITIMER_REAL, 0)
    done.set()
    taker.join()
    good = got == list(range(sent)) and fired[0] > 0 and fired[1] > 0 and all(child.wait() == 0 for child in children)
    return f"sent {sent}, got {len(got)}, timer {fired[0]}", good


def threads():
    """Eight threads that pass the hook all the time, and others that are born and die."""
    goes_on, counts = ends(), [0] * 8

    def run(n):
        while goes_on():
            counts[n] += 1
            time.sleep(0)
    lasting = [threading.Thread(target=run, args=(n,)) for n in range(8)]
    for thread in lasting:
        thread.start()
    born = 0
    while goes_on():
        short = [threading.Thread(target=time.sleep, args=(0.001,)) for _ in range(4)]
        for thread in short:
            thread.start()
        for thread in short:
            thread.join()
        born += 4
    for thread in lasting:
        thread.join()
    return f"born {born}", all(counts) and born > 0


def forks():
    """Forks and starts programs all the time; children run Python, give the GIL back, and end well."""
    goes_on, good = ends(), True
    while goes_on():
        child = os.fork()
        if child == 0:
            time.sleep(0.001)
            os._exit(7)
        good = good and os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        good = good and subprocess.run(["true"]).returncode == 0
    return "forked", good


def blocked():
    """One wait in the kernel, all the time."""
    reading, _ = os.pipe()
    readable = select.select([reading], [], [], SECONDS)[0]
    return "waited", readable == []


def execs():
    """Waits, and becomes another program when a line comes; in between it does not give the GIL back."""
    keeping = ctypes.PyDLL(None)
    path = b"/bin/sleep"
    words = (ctypes.c_char_p * 3)(b"sleep", b"1", None)
    byte = ctypes.create_string_buffer(8)
    keeping.read(0, byte, 1)
    keeping.execv(path, words)


if __name__ == "__main__":
    print("ready", os.getpid(), flush=True)
    said, fine = globals()[KIND]()
    print(said, "fine" if fine else "NOT FINE", flush=True)
    sys.exit(0 if fine else 1)
