/**
 * Netlink sockets that are open when the process ends. The kernel may have sent a notification meanwhile: npm `netlink`
 * would hand it to JavaScript that cannot run any more, and abort the process.
 */

interface Closable {
  close(): void
}

const open = new Set<Closable>()

/** Gives what closes the socket; it is closed at the end of the process otherwise. */
export function closeAtExit(socket: Closable): () => void {
  if (open.size === 0) process.on('exit', closeAll)
  open.add(socket)
  return () => {
    if (!open.delete(socket)) return
    if (open.size === 0) process.off('exit', closeAll)
    socket.close()
  }
}

function closeAll(): void {
  for (const socket of open) socket.close()
  open.clear()
}
