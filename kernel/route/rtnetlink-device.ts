/** Devices by name and by number, asked over a socket: what several drivers need before they can speak of one. */
import { isNotFound, KernelError } from '../errors.ts'
import { checkDeviceName } from './check-route.ts'
import type { RtnetlinkSocket } from './netlink-socket.ts'
import type { Link, VxlanLink } from './route-table.ts'
import { decodeLink, encodeLinkIndex, encodeLinkName, RTM_GETLINK } from './rtnetlink-link.ts'

/** All of this network namespace. Throws KernelError. */
export async function allDevices(
  socket: RtnetlinkSocket,
  signal: AbortSignal | undefined,
): Promise<readonly (Link | VxlanLink)[]> {
  const request = { type: RTM_GETLINK, body: encodeLinkIndex(0), operation: 'ip link show', signal }
  return (await socket.dump(request)).map((message) => decodeLink(message.data))
}

/** Name by number. Throws KernelError. */
export async function deviceNames(
  socket: RtnetlinkSocket,
  signal: AbortSignal | undefined,
): Promise<ReadonlyMap<number, string>> {
  return new Map((await allDevices(socket, signal)).map((item) => [item.index, item.name]))
}

/** The device of that name. Throws KernelError: ENODEV where there is none, EINVAL where the name cannot be one. */
export async function needDevice(
  socket: RtnetlinkSocket,
  name: string,
  operation: string,
  signal: AbortSignal | undefined,
): Promise<Link | VxlanLink> {
  checkDeviceName(name, operation)
  try {
    const [answer] = await socket.request({ type: RTM_GETLINK, body: encodeLinkName(name), operation, signal })
    if (answer !== undefined) return decodeLink(answer.data)
  } catch (error) {
    if (!isNotFound(error)) throw error
  }
  throw new KernelError('ENODEV', operation, `no device ${name}`)
}
