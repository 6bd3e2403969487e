"""A Python that has imported everything, and becomes a new process for each client by forking.

Arguments: the folder of the clients. It ends when its standard input does.
"""

import gc
import json
import multiprocessing.process
import os
import runpy
import selectors
import signal
import socket
import struct
import sys
from contextlib import suppress
from pathlib import Path

import psfit.plots
import pytest  # noqa: F401

import psfit.cli.measurement
import psfit.data.io.tables
import psfit.data.io.text
import psfit.reporting  # noqa: F401


class Server:
    """Children by their clients' sockets."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clients: dict[int, socket.socket] = {}
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(folder / "socket"))
        self.listener.listen(64)
        self.ended, self.wake = socket.socketpair()
        self.wake.setblocking(False)
        signal.set_wakeup_fd(self.wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.watched = selectors.DefaultSelector()
        for source in (self.listener, self.ended, sys.stdin):
            self.watched.register(source, selectors.EVENT_READ)

    def serve(self) -> list[str] | None:
        """In each child, the command line to run; in the server None, at the end."""
        while True:
            for key, _ in self.watched.select():
                if key.fileobj is sys.stdin:
                    for pid in self.clients:
                        _kill(pid)
                    return None
                if key.fileobj is self.listener:
                    arguments = self._accept()
                    if arguments is not None:
                        return arguments
                elif key.fileobj is self.ended:
                    self.ended.recv(4096)
                    self._reap()
                else:
                    # A client sends nothing after its request: its socket becomes readable only when it has ended.
                    self.watched.unregister(key.fileobj)
                    _kill(key.data)

    def _accept(self) -> list[str] | None:
        client, _ = self.listener.accept()
        head, files, _, _ = socket.recv_fds(client, 4, 8)
        if len(head) < 4:
            # It was ended before its request.
            client.close()
            return None
        request = client.recv(struct.unpack("!I", head)[0], socket.MSG_WAITALL)
        pid = os.fork()
        if pid == 0:
            return self._become(json.loads(request), files)
        # As the child does, so that it has its group before anybody asks for its end.
        with suppress(OSError):
            os.setpgid(pid, pid)
        for file in files:
            os.close(file)
        self.clients[pid] = client
        # A client that has ended is noticed by its socket.
        with suppress(OSError):
            client.sendall(struct.pack("!i", pid))
        self.watched.register(client, selectors.EVENT_READ, pid)
        return None

    def _become(self, request: tuple[str, list[str], str, dict[str, str]], files: list[int]) -> list[str]:
        """Take over the client's place; the command line to run."""
        name, arguments, folder, environment = request
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.setpgid(0, 0)
        self.watched.close()
        for held in (self.listener, self.ended, self.wake, *self.clients.values()):
            held.close()
        for number, file in enumerate(files[:3]):
            os.dup2(file, number)
            os.close(file)
        for file in files[3:]:
            os.set_inheritable(file, True)
            environment["PMI_FD"] = str(file)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        # Where multiprocessing believes that this program was started.
        multiprocessing.process.ORIGINAL_DIR = folder
        return arguments if name == "python" else [str(Path(sys.executable).parent / name), *arguments]

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            client = self.clients.pop(pid)
            with suppress(KeyError):
                self.watched.unregister(client)
            with suppress(OSError):
                client.sendall(struct.pack("!i", os.waitstatus_to_exitcode(status)))
            client.close()


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def run(arguments: list[str]) -> None:
    """What ``python`` does with a command line, as far as the tests use it."""
    if arguments[0] == "-u":
        arguments = arguments[1:]
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(write_through=True)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [*(path for path in paths if path), *(path for path in sys.path[1:] if path not in paths)]
    first, *rest = arguments
    if first == "-m":
        sys.path.insert(0, os.getcwd())
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.path.insert(0, "")
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.path.insert(0, str(Path(first).resolve().parent))
        sys.argv = arguments
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    server = Server(Path(sys.argv[1]))
    gc.collect()
    gc.freeze()
    print("ready", flush=True)
    arguments = server.serve()
    if arguments is not None:
        del server
        run(arguments)
