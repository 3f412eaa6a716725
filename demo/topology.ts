/**
 * The world of the demo: an internet, a broker's host and three sites. milano and tokyo have two gateways each.
 *
 *                               internet (a router)
 *        ┌───────────┬──────────────┼─────────────┬───────────────────┐
 *     broker     milano-gw     milano-gw2      paris-gw           tokyo-nat (address translation, nothing
 *                    └──────┬───────┘             │                   │      forwarded inwards)
 *                       milano-w1             paris-w1      tokyo-gw, tokyo-w1, tokyo-gw2
 *
 * Each node has a bridge with pods, each of them a namespace. The nodes do what a CNI does: routes between the
 * nodes' pods and masquerading of everything that leaves the pod range.
 */
import type { Lab } from './lab.ts'

/** By number: its network and its address end in it. A node `gw2` is a second gateway, without pods. */
const NODES = ['gw', 'w1', 'gw2'] as const
export type NodeName = (typeof NODES)[number]

export interface PodRow {
  readonly name: string
  readonly node: 'gw' | 'w1'
  /** Last two bytes of the address. */
  readonly host: string
}

export interface SiteRow {
  readonly name: 'milano' | 'paris' | 'tokyo'
  /** First two bytes of the pod range. */
  readonly podNet: string
  readonly nodes: readonly NodeName[]
  /** Both ends of the links to the internet, by the node that has one; none behind translation. */
  readonly internet: Partial<Readonly<Record<NodeName, InternetLink>>>
  readonly pods: readonly PodRow[]
}

interface InternetLink {
  readonly own: string
  readonly router: string
}

export const BROKER_ADDRESS = '203.0.113.2'
export const BROKER_PORT = 7443
const TOKYO_NAT = { own: '192.0.2.10', router: '192.0.2.9' }

/** The three sites; with `flat` their pod ranges differ. */
/** `gateways`: the most that a site has. */
export function siteRows(flat: boolean, gateways: 1 | 2 = 2): readonly SiteRow[] {
  const nodes: readonly NodeName[] = gateways === 1 ? ['gw', 'w1'] : ['gw', 'w1', 'gw2']
  const net = (site: number): string => (flat ? `10.${42 + 10 * site}` : '10.42')
  return [
    {
      name: 'milano',
      podNet: net(0),
      nodes,
      internet: {
        gw: { own: '192.0.2.2', router: '192.0.2.1' },
        gw2: { own: '192.0.2.14', router: '192.0.2.13' },
      },
      pods: [
        pod('web-0', 'gw', '0.10'),
        pod('web-1', 'w1', '1.10'),
        pod('db-0', 'w1', '1.20'),
        pod('db-1', 'gw', '0.20'),
      ],
    },
    {
      name: 'paris',
      podNet: net(1),
      nodes: ['gw', 'w1'],
      internet: { gw: { own: '192.0.2.6', router: '192.0.2.5' } },
      pods: [pod('web-0', 'w1', '1.10'), pod('db-0', 'gw', '0.20'), pod('client-0', 'w1', '1.30')],
    },
    {
      name: 'tokyo',
      podNet: net(2),
      nodes,
      internet: {},
      pods: [pod('client-0', 'gw', '0.30'), pod('client-1', 'w1', '1.30')],
    },
  ]
}

function pod(name: string, node: 'gw' | 'w1', host: string): PodRow {
  return { name, node, host }
}

export function podAddress(site: SiteRow, name: string): string {
  const row = site.pods.find((candidate) => candidate.name === name)
  if (row === undefined) throw new Error(`no pod ${name} in ${site.name}`)
  return `${site.podNet}.${row.host}`
}

const ROUTER = { 'net.ipv4.ip_forward': '1' }

export async function buildTopology(lab: Lab, sites: readonly SiteRow[]): Promise<void> {
  await lab.namespace('internet', ROUTER)
  await lab.namespace('broker')
  await lab.cable(
    { namespace: 'internet', device: 'broker', address: '203.0.113.1/30' },
    { namespace: 'broker', device: 'eth0', address: `${BROKER_ADDRESS}/30` },
  )
  await lab.ip('broker', 'route add default via 203.0.113.1')
  await Promise.all(sites.map((site) => buildSite(lab, site)))
  await watchInternet(lab)
}

async function buildSite(lab: Lab, site: SiteRow): Promise<void> {
  for (const name of site.nodes) {
    const node = `${site.name}-${name}`
    await lab.namespace(node, ROUTER)
    await lab.ownSockets(node)
    const link = site.internet[name]
    if (link !== undefined) await joinInternet(lab, node, node, link)
  }
  const router = await buildLan(lab, site)
  for (const name of site.nodes) {
    const node = `${site.name}-${name}`
    if (site.internet[name] === undefined) await lab.ip(node, `route add default via ${router}`)
    await buildNode(lab, site, name)
  }
  await Promise.all(site.pods.map((row) => buildPod(lab, site, row)))
}

async function joinInternet(lab: Lab, node: string, device: string, link: InternetLink): Promise<void> {
  await lab.cable(
    { namespace: 'internet', device, address: `${link.router}/30` },
    { namespace: node, device: 'wan', address: `${link.own}/30` },
  )
  await lab.ip(node, `route add default via ${link.router}`)
}

/** For a bridge, as CNIs do: without, it takes the lowest address of its ports, and changes it as ports come. */
const OWN_MAC = 'address 02:00:00:00:00:01'

/** A switch between the nodes of a site. Gives the address of who leads to the internet. */
async function buildLan(lab: Lab, site: SiteRow): Promise<string> {
  const isTranslated = Object.keys(site.internet).length === 0
  const middle = `${site.name}-${isTranslated ? 'nat' : 'lan'}`
  await lab.namespace(middle, isTranslated ? ROUTER : {})
  await lab.ip(middle, `link add lan ${OWN_MAC} type bridge`, 'link set lan up')
  for (const [port, name] of site.nodes.entries()) {
    await lab.cable(
      { namespace: middle, device: `port${port}`, bridge: 'lan' },
      { namespace: `${site.name}-${name}`, device: 'lan', address: `${lanAddress(name)}/24` },
    )
  }
  if (!isTranslated) return lanAddress('gw')
  await lab.ip(middle, `addr add ${LAN_ROUTER}/24 dev lan`)
  await joinInternet(lab, middle, site.name, TOKYO_NAT)
  await loadRules(lab, middle, [
    'table ip nat {',
    '  chain out { type nat hook postrouting priority srcnat; oifname "wan" masquerade; }',
    '  chain in { type filter hook forward priority filter; iifname "wan" ct state new drop; }',
    '}',
  ])
  return LAN_ROUTER
}

const LAN_ROUTER = '192.168.1.254'

function lanAddress(node: NodeName): string {
  return `192.168.1.${NODES.indexOf(node) + 1}`
}

/** Bridge, routes to the other nodes' pods, and a CNI's masquerading. */
async function buildNode(lab: Lab, site: SiteRow, name: NodeName): Promise<void> {
  const node = `${site.name}-${name}`
  const others = site.nodes.filter((other) => other !== name)
  await lab.ip(
    node,
    `link add cni0 ${OWN_MAC} type bridge`,
    `addr add ${site.podNet}.${NODES.indexOf(name)}.1/24 dev cni0`,
    'link set cni0 up',
    ...others.map((other) => `route add ${site.podNet}.${NODES.indexOf(other)}.0/24 via ${lanAddress(other)}`),
  )
  const range = `${site.podNet}.0.0/16`
  await loadRules(lab, node, [
    'table ip cni {',
    '  chain post { type nat hook postrouting priority srcnat;',
    `    ip saddr ${range} ip daddr != ${range} masquerade`,
    '  }',
    '}',
  ])
}

async function buildPod(lab: Lab, site: SiteRow, row: PodRow): Promise<void> {
  const name = `${site.name}-${row.name}`
  const node = `${site.name}-${row.node}`
  const bridge = `${site.podNet}.${NODES.indexOf(row.node)}.1`
  await lab.namespace(name)
  await lab.cable(
    { namespace: node, device: `pod-${row.name}`, bridge: 'cni0' },
    { namespace: name, device: 'eth0', address: `${podAddress(site, row.name)}/24` },
  )
  await lab.ip(name, `route add default via ${bridge}`)
  const search = 'shop.svc.clusterset.local svc.clusterset.local clusterset.local'
  await lab.resolvConf(name, `nameserver ${site.podNet}.0.1\nsearch ${search}\noptions ndots:5 timeout:1\n`)
}

/** Counts what crosses the internet: the tunnels, the broker's own port, inner addresses, anything else. */
async function watchInternet(lab: Lab): Promise<void> {
  const inner = '{ 10.0.0.0/8, 192.168.0.0/16, 244.0.0.0/8, 245.0.0.0/8, 246.0.0.0/8 }'
  // 4500 + the lane of the other end.
  const lanes = '{ 4500, 4501 }'
  await loadRules(lab, 'internet', [
    'table ip watch {',
    '  counter tunnels {}',
    '  counter broker {}',
    '  counter inner {}',
    '  counter other {}',
    '  chain forward { type filter hook forward priority filter;',
    `    ip saddr ${inner} counter name inner drop`,
    `    ip daddr ${inner} counter name inner drop`,
    `    udp dport ${lanes} counter name tunnels accept`,
    `    udp sport ${lanes} counter name tunnels accept`,
    // A gateway that has no device yet for the lane of who calls it.
    '    icmp type destination-unreachable icmp code port-unreachable counter name tunnels accept',
    `    tcp dport ${BROKER_PORT} counter name broker accept`,
    `    tcp sport ${BROKER_PORT} counter name broker accept`,
    '    counter name other',
    '  }',
    '}',
  ])
}

async function loadRules(lab: Lab, namespace: string, lines: readonly string[]): Promise<void> {
  await lab.must(namespace, 'nft', ['-f', '-'], { input: `${lines.join('\n')}\n` })
}
