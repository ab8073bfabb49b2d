"""Unix sockets: binding one with the right mode from its first instant, and knowing who is at the other end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import struct
import sys
from collections.abc import AsyncIterator
from pathlib import Path

BACKLOG = 1024
"""128 clients at once overflow the usual backlog of 100, and a waiting client is what a restart relies on."""

EMFILE_PAUSE_S = 0.1

log = logging.getLogger("recalld.protocol")


def bind(path: Path) -> socket.socket:
    """
    A listening socket at ``path``, mode 0600 from the start. Whoever calls holds the runtime folder's lock, so that an
    old file there is nobody's. Raises OSError (the path is longer than 103 bytes, the folder is missing).
    """
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # chmod after bind would leave a moment in which others may connect.
        previous = os.umask(0o177)
        try:
            listener.bind(os.fspath(path))
        finally:
            os.umask(previous)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def peer_uid(connection: socket.socket) -> int:
    """The uid of the process that connected. Raises OSError when the system will not tell."""
    if sys.platform == "darwin":
        credentials = connection.getsockopt(0, 1, 76)  # SOL_LOCAL, LOCAL_PEERCRED: struct xucred
        _, uid = struct.unpack_from("=II", credentials)
        return int(uid)
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    _, uid, _ = struct.unpack("3i", credentials)
    return int(uid)


async def accept(listener: socket.socket) -> AsyncIterator[socket.socket]:
    """
    Connections from this user, for ever. Others are closed with one log line.

    Running out of descriptors pauses accepting; clients wait in the backlog meanwhile.
    """
    loop = asyncio.get_running_loop()
    listener.setblocking(False)
    while True:
        try:
            connection, _ = await loop.sock_accept(listener)
        except ConnectionAbortedError:
            continue
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                raise
            log.warning("out of descriptors: new connections wait")
            await asyncio.sleep(EMFILE_PAUSE_S)
            continue
        if not _is_ours(connection):
            connection.close()
            continue
        connection.setblocking(False)
        yield connection


def _is_ours(connection: socket.socket) -> bool:
    try:
        uid = peer_uid(connection)
    except OSError as error:
        log.warning("refused a connection whose owner cannot be told: %s", error)
        return False
    if uid != os.getuid():
        log.warning("refused a connection from uid %d", uid)
        return False
    return True


async def streams(
    connection: socket.socket, *, limit: int = 256 * 1024
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """asyncio streams over a connected socket. ``limit``: bytes that are read ahead, and the longest line."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=limit, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await loop.connect_accepted_socket(lambda: protocol, connection)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)
