"""Real processes for tests, forked: importing torch anew would take longer than the tests."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import socket


@contextlib.contextmanager
def child(work):
    """A forked process in a group of its own, which ends with `work()` as its exit code and prints to its pipe."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            os.setsid()
            with os.fdopen(writing, "w", closefd=False) as out:
                faulthandler.dump_traceback_later(120, exit=True, file=out)  # a hang tells where it hangs
                code = work(lambda text: (out.write(text + "\n"), out.flush()))
        except BaseException as error:
            os.write(writing, f"{type(error).__name__}: {error}\n".encode())
            raise
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as lines:
        try:
            yield pid, lines
        except BaseException:
            os.kill(pid, signal.SIGKILL)
            raise


def exit_code(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run_ranks(size: int, work) -> list:
    """What `work(rank)` returns (as JSON) in each of `size` processes that see each other as torchrun's would."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def ranked(rank: int):
        def run(tell) -> int:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size),
                           "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}  # fmt: skip
            tell(json.dumps(work(rank)))
            return 0

        return run

    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(child(ranked(rank))) for rank in range(size)]
        said = [lines.read() for _, lines in children]
        codes = [exit_code(pid) for pid, _ in children]
    assert codes == [0] * size, (codes, said)
    return [json.loads(text) for text in said]
