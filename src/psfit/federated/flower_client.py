"""The ClientApp: it hands each message to the client's own process, which holds the data, and returns the answer.

Flower starts a new process for every message. Data and keys must outlive it, so they are elsewhere: in the process of
``psfit federated client``, behind a socket that only its user can open. This module imports nothing large.
"""

from multiprocessing.connection import Client

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

# The name of the setting of a SuperNode that says where the socket is.
SOCKET = "psfit-socket"

app = ClientApp()


@app.query()
def answer(message: Message, context: Context) -> Message:
    """Ask the client's process."""
    with Client(str(context.node_config[SOCKET]), "AF_UNIX") as pipe:
        pipe.send_bytes(read_content(message))
        reply = pipe.recv_bytes()
    return Message(make_content(reply), reply_to=message)


def make_content(data: bytes) -> RecordDict:
    """A message of the federation as the content of Flower's."""
    return RecordDict({"psfit": ArrayRecord({"message": Array(np.frombuffer(data, dtype=np.uint8))})})


def read_content(message: Message) -> bytes:
    """The message of the federation in Flower's."""
    record = message.content["psfit"]
    if not isinstance(record, ArrayRecord):
        raise TypeError("this message is not one of PsFiT's")
    return bytes(record["message"].numpy().tobytes())
