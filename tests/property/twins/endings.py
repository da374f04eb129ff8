# SPDX-License-Identifier: Apache-2.0
"""How a program may end: each a text that is put behind a training, with a word of what it prints before.

`digest()` is of all bits that the training leaves: parameters, buffers, gradients, what optimizers keep, the random state.
"""
DIGEST = '''
import atexit, ctypes, hashlib, os, signal, sys, threading


def digest():
    state = hashlib.sha256()
    tensors = [*model.parameters(), *model.buffers(), *(p.grad for p in model.parameters() if p.grad is not None)]
    for kept in optimizers:
        tensors += [value for entry in kept.state.values() for value in entry.values() if torch.is_tensor(value)]
    for tensor in [*tensors, torch.get_rng_state()]:
        state.update(tensor.detach().contiguous().view(-1).view(torch.uint8).cpu().numpy().tobytes())
    return state.hexdigest()


print("trained", digest(), flush=True)
'''

ENDINGS = {
    "normal": "",
    "sys.exit": "sys.exit(3)\n",
    "os._exit": "os._exit(4)\n",
    "exception": "raise RuntimeError('as asked')\n",
    "term, then kill": '''
signal.signal(signal.SIGTERM, lambda *_: print("asked to end", digest(), flush=True))
os.kill(os.getpid(), signal.SIGTERM)
model(torch.ones(N, D))
os.kill(os.getpid(), signal.SIGKILL)
''',
    "term": "os.kill(os.getpid(), signal.SIGTERM)\n",
    "interrupt": "os.kill(os.getpid(), signal.SIGINT)\nmodel(torch.ones(N, D))\n",
    "abort": "os.abort()\n",
    "std::terminate": 'ctypes.CDLL("libstdc++.so.6")._ZSt9terminatev()\n',
    # One waits for ever, one goes on computing when the main thread has ended.
    "threads alive": '''
waits = threading.Event()


def wait_for_ever():
    torch.ones(3).exp().sum().item()
    waits.set()  # One that still computes when Python ends may end the process by a signal, with or without us.
    threading.Event().wait()


def outlive():
    threading.main_thread().join()
    print("outlived", torch.arange(9.).exp().sum().item(), digest(), flush=True)


threading.Thread(target=wait_for_ever, daemon=True).start()
waits.wait()
threading.Thread(target=outlive).start()
''',
    "atexit": '''
atexit.register(lambda: print("at the end", model(torch.ones(N, D)).sum().item(), digest(), flush=True))
''',
    "atexit that raises": "atexit.register(lambda: model(torch.ones(N, D)) / None)\n",
    "exec": '''
os.execv(sys.executable, [sys.executable, "-c", "print('another program')"])
''',
    "forked child that goes on": '''
child = os.fork()
if child == 0:
    with torch.no_grad():
        print("child", torch.arange(5.).log().sum().item(), digest(), flush=True)
    sys.exit(5)
print("child ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
''',
}
