/** What gateway and routeagent see of their node's own files, and nothing else of them. */
import { type Mount, SITE_MOUNT } from './pod.ts'

/**
 * The runtime shows /proc/sys read-only to containers; these are the settings of the node's own network namespace. Only
 * net/: with the rest of /proc/sys root in the container could take over the node.
 */
export const SYSCTLS: Mount = {
  name: 'sysctls',
  path: '/host/proc/sys/net',
  source: { hostPath: { path: '/proc/sys/net', type: 'Directory' } },
}
/** Receive queues of lanes and overlay, read-only in containers too. */
export const DEVICES: Mount = {
  name: 'devices',
  path: '/host/sys/devices/virtual/net',
  source: { hostPath: { path: '/sys/devices/virtual/net', type: 'Directory' } },
}
/** Lane keys, made on the node and never leaving it, and what was switched on there. */
const NODE_STATE: Mount = {
  name: 'state',
  path: '/var/lib/sealane',
  source: { hostPath: { path: '/var/lib/sealane', type: 'DirectoryOrCreate' } },
}
export const TUN: Mount = {
  name: 'tun',
  path: '/dev/net/tun',
  source: { hostPath: { path: '/dev/net/tun', type: 'CharDevice' } },
}

export const NODE_MOUNTS: readonly Mount[] = [SITE_MOUNT, NODE_STATE, SYSCTLS, DEVICES]

/** Paths on the node that a pod of gateway or routeagent may mount. */
export const NODE_PATHS: readonly string[] = [...NODE_MOUNTS, TUN].flatMap(({ source }) => {
  const { hostPath } = source as { readonly hostPath?: { readonly path: string } }
  return hostPath === undefined ? [] : [hostPath.path]
})
