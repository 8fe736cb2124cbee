"""What forked processes and other threads get of an object that this process holds."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def in_fork(call: Callable[[], Any]) -> str:
    """What a call raises in a forked process, as "ValueError: the message"; empty where it raises nothing."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            call()
        except BaseException as error:
            os.write(write, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(write)
    with open(read, encoding="utf-8") as told:
        text = told.read()
    os.waitpid(child, 0)
    return text


def in_thread(call: Callable[[], Any]) -> Any:
    """What a call returns, or raises, in a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        end = pool.submit(call)
        return end.exception() or end.result()
