/**
 * What an administrator would build by hand: two WireGuard devices between two nodes, each over a path of its own, ECMP
 * routes over both, and a script on each node. Once a second the script pings the far end of each device, and removes
 * the route over a device whose far end does not answer.
 *
 *   pod ── node ══ wg0 over path 0 ══ node ── pod
 *            ╚════ wg1 over path 1 ════╝
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Netns, withNetns } from '../support/netns.ts'
import { withSockets } from '../support/wireguard-sockets.ts'

/** The addresses of the pods. */
export const HAND_ADDRESSES = ['10.1.0.7', '10.2.0.7'] as const

export interface HandMadeLanes {
  readonly pods: readonly [Netns, Netns]
  readonly lanes: readonly { cutOff(): Promise<void>; bringBack(): Promise<void> }[]
}

const PATHS = [0, 1] as const

export function withHandMadeLanes<T>(story: (lanes: HandMadeLanes) => Promise<T>): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), 'sealane-by-hand-'))
  return withNetns((left) =>
    withNetns((right) =>
      withNetns((podLeft) =>
        withNetns(async (podRight) => {
          const nodes = [left, right] as const
          const pods = [podLeft, podRight] as const
          try {
            for (const path of PATHS) await wirePath(left, right, path)
            for (const i of [0, 1] as const) await wirePod(nodes[i], pods[i], i)
            for (const path of PATHS) await makeTunnel(nodes, folder, path)
            for (const i of [0, 1] as const) await watch(nodes[i], i)
            const lanes = PATHS.map((path) => ({
              cutOff: () => cut(left, path, 'down'),
              bringBack: () => cut(left, path, 'up'),
            }))
            return await story({ pods, lanes })
          } finally {
            rmSync(folder, { recursive: true, force: true })
          }
        }),
      ),
    ),
  )
}

async function wirePath(left: Netns, right: Netns, path: number): Promise<void> {
  await ip(left, `link add path${path} type veth peer name path${path} netns ${right.name}`)
  for (const [ns, host] of [
    [left, 1],
    [right, 2],
  ] as const) {
    await ip(ns, `address add 192.0.${path}.${host}/24 dev path${path}`)
    await ip(ns, `link set path${path} up`)
    await ns.exec('sysctl', ['-qw', 'net.ipv4.ip_forward=1', 'net.ipv4.fib_multipath_hash_policy=1'])
  }
}

async function wirePod(node: Netns, pod: Netns, i: 0 | 1): Promise<void> {
  await ip(node, `link add pod0 type veth peer name eth0 netns ${pod.name}`)
  await ip(node, `address add 10.${i + 1}.0.1/24 dev pod0`)
  await ip(node, 'link set pod0 up')
  await ip(pod, `address add ${HAND_ADDRESSES[i]}/24 dev eth0`)
  await ip(pod, 'link set eth0 up')
  await ip(pod, `route add default via 10.${i + 1}.0.1`)
}

async function makeTunnel(nodes: readonly [Netns, Netns], folder: string, path: number): Promise<void> {
  const keys = await Promise.all(nodes.map((ns) => ns.exec('wg', ['genkey'])))
  const publicKeys = await Promise.all(nodes.map((ns, i) => ns.exec('wg', ['pubkey'], { input: keys[i]! })))
  for (const [i, ns] of nodes.entries()) {
    // Each node has a folder of its own, since both have devices of the same names.
    const inside = (command: string[]): string[] => withSockets(join(folder, String(i)), command)
    const run = ([command = '', ...args]: string[]): Promise<string> => ns.exec(command, args)
    await ns.exec('mkdir', ['-p', join(folder, String(i))])
    await run(inside(['wireguard-go', `wg${path}`]))
    const config = [
      '[Interface]',
      `PrivateKey = ${keys[i]!.trim()}`,
      `ListenPort = ${51820 + path}`,
      '[Peer]',
      `PublicKey = ${publicKeys[1 - i]!.trim()}`,
      'AllowedIPs = 10.0.0.0/8',
      `Endpoint = 192.0.${path}.${2 - i}:${51820 + path}`,
    ]
    const file = join(folder, String(i), `wg${path}.conf`)
    writeFileSync(file, config.join('\n'), { mode: 0o600 })
    await run(inside(['wg', 'setconf', `wg${path}`, file]))
    await ip(ns, `address add 10.9.${path}.${i + 1}/24 dev wg${path}`)
    await ip(ns, `link set wg${path} mtu 1420 up`)
  }
}

/** The script as an administrator would write it. */
async function watch(node: Netns, i: number): Promise<void> {
  const far = 2 - i
  const script = `
    while :; do
      hops=
      for path in 0 1; do
        if ping -q -c 1 -W 1 10.9.$path.${far} >/dev/null; then hops="$hops nexthop dev wg$path"; fi
      done
      if [ "$hops" != "$before" ] && [ -n "$hops" ]; then ip route replace 10.${far}.0.0/24 $hops; fi
      before=$hops
      sleep 1
    done`
  await ip(node, `route replace 10.${far}.0.0/24 nexthop dev wg0 nexthop dev wg1`)
  node.spawn('sh', ['-c', script])
}

function cut(left: Netns, path: number, state: 'up' | 'down'): Promise<void> {
  return ip(left, `link set path${path} ${state}`).then(() => undefined)
}

function ip(ns: Netns, text: string): Promise<string> {
  return ns.exec('ip', text.split(' '))
}
