/** The control sockets of wireguard-go are files, which network namespaces do not separate. */

const SCRIPT = 'mount -t tmpfs tmpfs /run && mkdir /run/wireguard && mount --bind "$0" /run/wireguard && exec "$@"'

/** The command, changed so that it finds its control sockets in this folder and sees no others. */
export function withSockets(folder: string, command: readonly string[]): string[] {
  return ['unshare', '-m', 'sh', '-c', SCRIPT, folder, ...command]
}
