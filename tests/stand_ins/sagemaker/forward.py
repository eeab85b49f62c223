"""Ports of this machine, reachable at the same address from inside an instance.

A socket belongs to the network in which it was made, wherever it is used: instances listen on their own loopback
device and hand the listening sockets out, and this side answers there and connects here.
"""

import asyncio
import contextlib
import socket
import threading


class Forwarder:
    """Accepts on sockets that came out of instances, in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="forwarder", daemon=True).start()

    def adopt(self, listener: socket.socket, port: int) -> "Door":
        """Connect whoever comes to `listener` with `127.0.0.1:port` of this machine."""
        listener.setblocking(False)

        async def serve() -> asyncio.Server:
            return await asyncio.start_server(lambda *ends: _connect(port, *ends), sock=listener)

        return Door(self._loop, asyncio.run_coroutine_threadsafe(serve(), self._loop).result(timeout=10))


class Door:
    """One forwarded port of one instance."""

    def __init__(self, loop: asyncio.AbstractEventLoop, server: asyncio.Server) -> None:
        self._loop = loop
        self._server = server

    def close(self) -> None:
        """Accept nothing more."""
        self._loop.call_soon_threadsafe(self._server.close)


async def _connect(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        writer.transport.abort()
        return
    await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
    for end in (writer, far_writer):
        end.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(1 << 16):
            writer.write(piece)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
