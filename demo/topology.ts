/**
 * The world of the demo: an internet, a broker's host and three sites of two nodes each.
 *
 *                        internet (a router)
 *        ┌──────────────┬──────┴───────┬──────────────────┐
 *     broker        milano-gw       paris-gw          tokyo-nat (address translation, nothing forwarded inwards)
 *                       │              │                  │
 *                   milano-w1       paris-w1        tokyo-gw, tokyo-w1
 *
 * Each node has a bridge with pods, each of them a namespace. The nodes do what a CNI does: routes between the
 * nodes' pods and masquerading of everything that leaves the pod range.
 */
import type { Lab } from './lab.ts'

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
  /** First three bytes of the link to the internet and the site's last byte on it; absent behind translation. */
  readonly internet?: { readonly own: string; readonly router: string }
  readonly pods: readonly PodRow[]
}

export const BROKER_ADDRESS = '203.0.113.2'
export const BROKER_PORT = 7443
const TOKYO_NAT = { own: '192.0.2.10', router: '192.0.2.9' }

/** The three sites; with `flat` their pod ranges differ. */
export function siteRows(flat: boolean): readonly SiteRow[] {
  const net = (site: number): string => (flat ? `10.${42 + 10 * site}` : '10.42')
  return [
    {
      name: 'milano',
      podNet: net(0),
      internet: { own: '192.0.2.2', router: '192.0.2.1' },
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
      internet: { own: '192.0.2.6', router: '192.0.2.5' },
      pods: [pod('web-0', 'w1', '1.10'), pod('db-0', 'gw', '0.20'), pod('client-0', 'w1', '1.30')],
    },
    { name: 'tokyo', podNet: net(2), pods: [pod('client-0', 'gw', '0.30'), pod('client-1', 'w1', '1.30')] },
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
  const gateway = `${site.name}-gw`
  const worker = `${site.name}-w1`
  for (const node of [gateway, worker]) {
    await lab.namespace(node, ROUTER)
    await lab.ownSockets(node)
  }
  if (site.internet !== undefined) {
    await joinInternet(lab, gateway, site.name, site.internet)
    await lab.cable(
      { namespace: gateway, device: 'lan', address: '192.168.1.1/24' },
      { namespace: worker, device: 'lan', address: '192.168.1.2/24' },
    )
    await lab.ip(worker, 'route add default via 192.168.1.1')
  } else {
    await buildTranslatedLan(lab, site.name, [gateway, worker])
  }
  for (const [index, node] of [gateway, worker].entries()) await buildNode(lab, site, node, index)
  await Promise.all(site.pods.map((row) => buildPod(lab, site, row)))
}

async function joinInternet(
  lab: Lab,
  node: string,
  device: string,
  link: { own: string; router: string },
): Promise<void> {
  await lab.cable(
    { namespace: 'internet', device, address: `${link.router}/30` },
    { namespace: node, device: 'wan', address: `${link.own}/30` },
  )
  await lab.ip(node, `route add default via ${link.router}`)
}

/** For a bridge, as CNIs do: without, it takes the lowest address of its ports, and changes it as ports come. */
const OWN_MAC = 'address 02:00:00:00:00:01'

async function buildTranslatedLan(lab: Lab, site: string, nodes: readonly string[]): Promise<void> {
  const nat = `${site}-nat`
  await lab.namespace(nat, ROUTER)
  await joinInternet(lab, nat, site, TOKYO_NAT)
  await lab.ip(nat, `link add lan ${OWN_MAC} type bridge`, 'addr add 192.168.1.254/24 dev lan', 'link set lan up')
  for (const [index, node] of nodes.entries()) {
    await lab.cable(
      { namespace: nat, device: `port${index}`, bridge: 'lan' },
      { namespace: node, device: 'lan', address: `192.168.1.${index + 1}/24` },
    )
    await lab.ip(node, 'route add default via 192.168.1.254')
  }
  await loadRules(lab, nat, [
    'table ip nat {',
    '  chain out { type nat hook postrouting priority srcnat; oifname "wan" masquerade; }',
    '  chain in { type filter hook forward priority filter; iifname "wan" ct state new drop; }',
    '}',
  ])
}

/** Bridge, route to the other node's pods, and a CNI's masquerading. */
async function buildNode(lab: Lab, site: SiteRow, node: string, index: number): Promise<void> {
  const other = 1 - index
  await lab.ip(
    node,
    `link add cni0 ${OWN_MAC} type bridge`,
    `addr add ${site.podNet}.${index}.1/24 dev cni0`,
    'link set cni0 up',
    `route add ${site.podNet}.${other}.0/24 via 192.168.1.${other + 1}`,
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
  const bridge = `${site.podNet}.${row.node === 'gw' ? 0 : 1}.1`
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
  await loadRules(lab, 'internet', [
    'table ip watch {',
    '  counter tunnels {}',
    '  counter broker {}',
    '  counter inner {}',
    '  counter other {}',
    '  chain forward { type filter hook forward priority filter;',
    `    ip saddr ${inner} counter name inner drop`,
    `    ip daddr ${inner} counter name inner drop`,
    '    udp dport 4500 counter name tunnels accept',
    '    udp sport 4500 counter name tunnels accept',
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
