/**
 * The network that nodes are in: one namespace with a bridge, and one namespace per node with eth0 on that bridge.
 * All names begin with the underlay's own prefix, and everything that begins with it is removed at the end, whoever
 * made it: so pods of a test kubelet that was killed do not stay behind. If this process is killed, the next one does
 * it.
 */
import { execFileSync } from 'node:child_process'
import { namedNetns, ownedNetnsName, removeNetns } from '../../support/netns-names.ts'

export interface Underlay {
  /** What all namespaces begin with; see ownedNetnsName(). */
  readonly prefix: string
  /** Namespace of the bridge `wan`, for what is between the nodes. */
  readonly wan: string
  /** Makes a node's namespace with the addresses, such as 192.0.2.11/24, on eth0, and gives its name. */
  addNode(name: string, ...addresses: readonly string[]): string
  /**
   * As addNode(), but a router is between the node and the bridge: what the node sends has the router's `outside`
   * address there, and nobody can call it from outside. Addresses such as 10.77.0.2/24, 10.77.0.1/24 and 192.0.2.9/24.
   */
  addNodeBehindNat(name: string, places: NatPlaces): string
  /** In one node's namespace: packets for `prefix` go to the node with that address. */
  route(node: string, prefix: string, via: string): void
  /** Takes the node's cable out, and puts it in again. The node itself keeps its addresses and routes. */
  plug(node: string, isIn: boolean): void
  /** Ends all processes in the namespaces and removes them. Also happens when this process exits. */
  remove(): void
}

export interface NatPlaces {
  readonly node: string
  readonly inside: string
  readonly outside: string
}

/** Ports are not kept: with `random` nobody can guess which one leads to the node. */
const MASQUERADE = `table ip nat {
  chain out { type nat hook postrouting priority srcnat; oifname eth0 masquerade random; }
  chain in { type filter hook forward priority filter; iifname eth0 ct state new drop; }
}`

const living = new Set<string>()

/** Makes an underlay without nodes. Needs root. */
export function makeUnderlay(): Underlay {
  const prefix = ownedNetnsName()
  const wan = `${prefix}-wan`
  removeAtExit()
  living.add(prefix)
  ip('netns', 'add', wan)
  ip('-n', wan, 'link', 'add', 'wan', 'type', 'bridge')
  ip('-n', wan, 'link', 'set', 'wan', 'up')
  ip('-n', wan, 'link', 'set', 'lo', 'up')
  let count = 0
  const ports = new Map<string, string>()
  const addNode: Underlay['addNode'] = (name, ...addresses) => {
    const netns = `${prefix}-${name}`
    const port = `port${count++}`
    ports.set(name, port)
    ip('netns', 'add', netns)
    ip('-n', wan, 'link', 'add', port, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', netns)
    ip('-n', wan, 'link', 'set', port, 'master', 'wan', 'up')
    setUp(netns, addresses)
    return netns
  }
  return {
    prefix,
    wan,
    addNode,
    addNodeBehindNat(name, { node, inside, outside }) {
      const router = addNode(`nat-${name}`, outside)
      const netns = `${prefix}-${name}`
      ip('netns', 'add', netns)
      ip('-n', router, 'link', 'add', 'inside', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', netns)
      ip('-n', router, 'address', 'add', inside, 'dev', 'inside')
      ip('-n', router, 'link', 'set', 'inside', 'up')
      ip('netns', 'exec', router, 'sysctl', '-qw', 'net.ipv4.ip_forward=1')
      execFileSync('ip', ['netns', 'exec', router, 'nft', '-f', '-'], { input: MASQUERADE, stdio: 'pipe' })
      setUp(netns, [node])
      ip('-n', netns, 'route', 'add', 'default', 'via', inside.split('/')[0] ?? '')
      return netns
    },
    route(node, to, via) {
      ip('-n', `${prefix}-${node}`, 'route', 'replace', to, 'via', via)
    },
    plug(node, isIn) {
      ip('-n', wan, 'link', 'set', ports.get(node) ?? `of unknown node ${node}`, isIn ? 'up' : 'down')
    },
    remove: () => removeAll(prefix),
  }
}

function setUp(netns: string, addresses: readonly string[]): void {
  ip('-n', netns, 'link', 'set', 'lo', 'up')
  for (const address of addresses) {
    // Without the search for duplicates: an address could not be used for a second or two.
    const duplicates = address.includes(':') ? ['nodad'] : []
    ip('-n', netns, 'address', 'add', address, 'dev', 'eth0', ...duplicates)
  }
  ip('-n', netns, 'link', 'set', 'eth0', 'up')
}

function ip(...args: readonly string[]): string {
  return execFileSync('ip', [...args], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] })
}

function removeAll(prefix: string): void {
  if (!living.delete(prefix)) return
  namedNetns()
    .filter((name) => name.startsWith(`${prefix}-`))
    .forEach(removeNetns)
}

let watching = false
function removeAtExit(): void {
  if (watching) return
  watching = true
  process.on('exit', () => [...living].forEach(removeAll))
}
