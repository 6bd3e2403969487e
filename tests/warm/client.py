"""A program that another process runs in its place: arguments, folder, environment and open files go there.

It passes signals on and ends as that process ends. It imports very little, so that it starts quickly.
"""

import json
import os
import signal
import socket
import struct
import sys

# How a launcher of MPI talks to its ranks.
LAUNCHERS_FILE = "PMI_FD"


def main() -> None:
    folder, name = os.path.split(os.path.abspath(sys.argv[0]))
    files = [0, 1, 2]
    if LAUNCHERS_FILE in os.environ:
        files.append(int(os.environ[LAUNCHERS_FILE]))
    server = socket.socket(socket.AF_UNIX)
    server.connect(os.path.join(folder, "socket"))
    request = json.dumps([name, sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [struct.pack("!I", len(request))], files)
    server.sendall(request)
    (pid,) = struct.unpack("!i", server.recv(4, socket.MSG_WAITALL))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: os.kill(pid, number))
    (code,) = struct.unpack("!i", server.recv(4, socket.MSG_WAITALL))
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


main()
