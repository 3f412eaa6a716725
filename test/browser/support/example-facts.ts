/** Facts with names and figures as a cluster of a shop would have them, for pictures and for what a person reads. */
import type { ConsoleFacts, DeniedFact, FlowsFacts } from '../../../console/console.ts'
import { type LooseLink, changeLinks } from '../../explain/broken-member.ts'
import { type Change, consoleFacts, sharesFrom } from '../../console/support/console-facts.ts'
import { NOW, SELF } from '../../support/objects/member-facts.ts'

interface Far {
  readonly region: string
  readonly address: string
  readonly rttMs: number
}

const FAR: Readonly<Record<string, Far>> = {
  frankfurt: { region: 'eu', address: '192.0.2.40:4500', rttMs: 9.4 },
  oregon: { region: 'us', address: '198.51.100.12:4500', rttMs: 151.7 },
  tokyo: { region: 'ap', address: '203.0.113.7:4500', rttMs: 213.2 },
}
/** In the order of web0, web1, …, as which member-facts.ts makes them. */
const SERVICES = ['checkout', 'catalogue', 'payments', 'search', 'stock']
const SIZE = { others: Object.keys(FAR), gateways: 2, workers: 2, services: SERVICES.length }

const DENIED: readonly DeniedFact[] = [
  {
    ...{ at: '2026-11-25T11:59:31.000Z', node: 'w1', reason: 'access-not-exported', protocol: 'tcp', port: 6379 },
    from: { address: '10.103.4.18', cluster: 'oregon', namespace: 'web', pod: 'front-7c9' },
    to: { address: '10.42.1.5', cluster: SELF, namespace: 'shop', pod: 'cache-0' },
  },
  {
    ...{ at: '2026-11-25T11:58:02.000Z', node: 'w0', reason: 'access-not-offered', protocol: 'tcp', port: 8443 },
    from: { address: '10.104.0.77', cluster: 'tokyo', namespace: 'batch', pod: 'report-28' },
    to: { address: '10.42.2.9', cluster: SELF, service: 'shop/payments' },
  },
]

const FLOWS: FlowsFacts = {
  lines: [
    {
      ...{ at: '2026-11-25T11:59:58.000Z', node: 'w0', outcome: 'answered', protocol: 'tcp', port: 8443, ms: 152.4 },
      from: { address: '10.42.1.5', cluster: SELF, namespace: 'shop', pod: 'basket-0' },
      to: { address: '245.0.0.12', cluster: 'oregon', service: 'shop/web2' },
    },
    {
      ...{ at: '2026-11-25T11:59:40.000Z', node: 'w1', outcome: 'refused', protocol: 'tcp', port: 6379 },
      reason: 'CallRefused',
      from: { address: '10.42.2.7', cluster: SELF, namespace: 'web', pod: 'front-7c9' },
      to: { address: '245.0.0.10', cluster: 'tokyo', service: 'shop/web0' },
    },
  ],
  calls: [
    {
      ...{ name: 'shop/web2', callsPerSecond: 4.5, bytesPerSecond: 18_200, p50Ms: 151.9, p99Ms: 160.2 },
      recent: { refused: 0, unanswered: 2 },
    },
    {
      ...{ name: 'shop/web0', callsPerSecond: 0.5, bytesPerSecond: 900, p50Ms: 10.1, p99Ms: 12.2 },
      recent: { refused: 3, unanswered: 0 },
    },
  ],
  ...{ sampled: 20, problems: [] },
}

const POLICY = {
  apiVersion: 'sealane.io/v1alpha1',
  kind: 'TrafficPolicy',
  metadata: { name: 'near-first', namespace: 'shop' },
  spec: { targetRefs: [{ name: 'web0' }], order: [{ local: {} }, { any: {} }] },
} as const

/** The time of the facts. A browser whose clock stands a few seconds later shows recent ages. */
export const EXAMPLE_TIME = Date.parse(NOW)

/** All is well, unless `change` breaks something. */
export function exampleFacts(change: Change = () => undefined): ConsoleFacts {
  const found = consoleFacts({
    ...SIZE,
    change: (at) => {
      for (const { spec } of at('Cluster')) spec['labels'] = { region: regionOf(String(spec['id'])) }
      for (const [i, { spec }] of at('ServiceImport').entries())
        Object.assign(spec, { type: 'ClusterSetIP', ips: [`245.0.0.${10 + i}`] })
      Object.assign(at('Cluster')[0]?.status ?? {}, { importedBy: IMPORTED_BY })
      for (const [cluster, { address, rttMs }] of Object.entries(FAR)) {
        const isThere = (link: LooseLink): boolean => link.cluster === cluster
        changeLinks(at, isThere, { usingAddress: address, rttMs })
      }
      change(at)
    },
    input: {
      flags: `--context ${SELF}`,
      shares: sharesFrom(SIZE, { policies: [POLICY] }),
      denied: { t: 'known', at: NOW, value: DENIED },
      flows: { t: 'known', at: NOW, value: FLOWS },
    },
  })
  const named = SERVICES.reduce((text, name, i) => text.replaceAll(`web${i}`, name), JSON.stringify(found))
  return JSON.parse(named.replaceAll('context \\"c1\\"', `context \\"${SELF}\\"`)) as ConsoleFacts
}

const IMPORTED_BY = SERVICES.map((_, i) => ({
  ...{ namespace: 'shop', name: `web${i}` },
  clusters: Object.keys(FAR).slice(0, 1 + (i % 3)),
}))

function regionOf(cluster: string): string {
  return FAR[cluster]?.region ?? 'eu'
}

/** No link to Tokyo answers. */
export const cutOffTokyo: Change = (at) =>
  changeLinks(at, ({ cluster }) => cluster === 'tokyo', {
    state: 'down',
    message: 'no answer to probes: open UDP 4500 at the other gateway',
  })

/** The process on gw1 ended two minutes before the facts were read. */
export const gatewayDied: Change = (at) => {
  for (const { metadata, status } of at('Gateway'))
    if (metadata.name === 'gw1') status['heartbeatTime'] = '2026-11-25T11:58:00Z'
}
