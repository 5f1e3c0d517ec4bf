"""Real processes for tests, forked: importing torch anew would take longer than the tests."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor, as_completed

from torch.distributed import TCPStore

HANG_S = 500  # below pytest's own limit; a machine that is busy may be twenty times slower than one that is not


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
                faulthandler.dump_traceback_later(HANG_S, exit=True, file=out)  # a hang tells where it hangs
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
    # As torchrun does, the parent keeps the store that ranks meet at: a port that was free a moment ago may be another
    # process's by now, and ranks that meet at a stranger's store wait for each other until they time out.
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    # No rank begins before all are forked: the store's thread answers those that have begun, and a process that is
    # forked while it does so may find a lock held for ever.
    waiting, holding = os.pipe()

    def ranked(rank: int):
        def run(tell) -> int:
            os.close(holding)
            os.read(waiting, 1)  # until every copy of the other end is closed
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size),
                           "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port),
                           "TORCHELASTIC_USE_AGENT_STORE": "True"}  # fmt: skip
            tell(json.dumps(work(rank)))
            return 0

        return run

    def finish(pid: int, lines) -> tuple[str, int]:
        return lines.read(), exit_code(pid)

    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(child(ranked(rank))) for rank in range(size)]
        os.close(holding)
        os.close(waiting)
        with ThreadPoolExecutor(size) as pool:  # only now: a fork leaves threads behind
            ends = [pool.submit(finish, *each) for each in children]
            for end in as_completed(ends):
                if end.result()[1] != 0:  # the others would wait for it
                    for (pid, _), other in zip(children, ends, strict=True):
                        if not other.done():
                            os.kill(pid, signal.SIGKILL)
        said, codes = zip(*(end.result() for end in ends), strict=True)
    assert codes == (0,) * size, (codes, said)
    return [json.loads(text) for text in said]
