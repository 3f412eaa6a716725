/** Which backends answer which callers, and what the names resolve to. */
import type { Test } from 'tap'
import { type Call, callers, lookUp } from '../support/callers.ts'
import type { Json, KubeObject } from '../support/kube-request.ts'
import { awaitImport, exportService } from '../support/service-imports.ts'
import { expectCallers, inZone, same } from './expect.ts'
import type { Shop } from './shop.ts'

/** Each row has the name, the port and protocol, and the backends that must answer in every cluster. */
const REACH: readonly (readonly [
  says: string,
  name: string,
  port: number,
  protocol: Call['protocol'],
  wanted: string,
])[] = [
  ['T16: not exported', 'secret', 42, 'tcp', 'nobody'],
  ['T17, T18: exported from one of two', 'from-first', 42, 'tcp', 'c1'],
  ['the same by UDP', 'from-first', 42, 'udp', 'c1'],
  ['spread over both', 'from-both', 42, 'tcp', 'c1 c2'],
  ['the same by UDP', 'from-both', 42, 'udp', 'c1 c2'],
  ['T19: the older export’s port number', 'other-number', 42, 'tcp', 'c1'],
  ['T20: each port where it is', 'other-name', 42, 'tcp', 'c1'],
  ['T20: each port where it is', 'other-name', 4242, 'tcp', 'c2'],
  ['a NodePort', 'node-port', 42, 'tcp', 'c1'],
  ['a LoadBalancer', 'load-balancer', 42, 'udp', 'c1'],
  ['a headless service, by its pods', 'bare', 42, 'tcp', 'c1'],
]

export async function reachStory(t: Test, { c1, both }: Shop): Promise<void> {
  for (const [says, name, port, protocol, wanted] of REACH) {
    for (const site of both) await expectCallers(t, site, { name, port, protocol, wanted, says })
  }
  await exportService(c1, 'shop', 'secret')
  for (const site of both) {
    await awaitImport(site, 'shop', 'secret')
    const ask = (): Promise<string> => callers(site, { namespace: 'shop', host: inZone('secret'), times: 1 })
    await same(t, ask, 'c1', `T16 is not vacuous: exported, it answers in ${site.name}`)
  }
}

export async function localStory(t: Test, { both }: Shop): Promise<void> {
  for (const site of both) {
    for (const name of ['from-first', 'from-both']) {
      const host = `${name}.shop.svc.cluster.local`
      t.equal(await callers(site, { namespace: 'shop', host, times: 20 }), site.name, `${host} in ${site.name}`)
    }
    const { spec } = await site.api.get<KubeObject & { spec: Json }>('/api/v1/namespaces/shop/services/from-first')
    const local = await lookUp(site, 'shop', 'from-first.shop.svc.cluster.local', 'A')
    t.equal(local, `NOERROR ${String(spec['clusterIP'])}`, `T24: cluster.local stays local in ${site.name}`)
  }
}

export async function nameStory(t: Test, { both, pods }: Shop): Promise<void> {
  const hello = [...pods.c1].filter(([name]) => name.startsWith('hello-')).map(([, address]) => address)
  const dashed = hello.map((address) => address.replaceAll('.', '-'))
  for (const site of both) {
    const ip = (await awaitImport(site, 'shop', 'from-first')).spec.ips?.[0] ?? ''
    const rows: readonly (readonly [says: string, name: string, type: string, wanted: string])[] = [
      ['T22', inZone('from-first'), 'A', `NOERROR ${ip}`],
      ['T23', inZone('from-first'), 'SRV', `NOERROR 0 100 42 ${inZone('from-first')}.`],
      ['of one port', `_udp._udp.${inZone('from-first')}`, 'SRV', `NOERROR 0 100 42 ${inZone('from-first')}.`],
      ['T25', inZone('bare'), 'A', ['NOERROR', ...hello.sort()].join(' ')],
      ['T27', inZone('bare'), 'SRV', srv(dashed.map((name) => `${name}.c1.${inZone('bare')}`))],
      ...['named-0', 'named-1'].map(
        (pod) => ['T26', `${pod}.c1.${inZone('named')}`, 'A', `NOERROR ${pods.c1.get(pod) ?? ''}`] as const,
      ),
      ['a cluster has no name', `c1.${inZone('from-first')}`, 'A', 'NXDOMAIN'],
      ['nor in a headless service an address', `c1.${inZone('bare')}`, 'A', 'NOERROR'],
      ['nobody exports it', inZone('nothing'), 'A', 'NXDOMAIN'],
      ['no other family', inZone('from-first'), 'AAAA', 'NOERROR'],
    ]
    for (const [says, name, type, wanted] of rows) {
      t.equal(await lookUp(site, 'shop', name, type), wanted, `${says}: ${name} ${type} in ${site.name}`)
    }
    const reverse = await lookUp(site, 'shop', `${ip.split('.').reverse().join('.')}.in-addr.arpa`, 'PTR')
    t.notMatch(reverse, ' ', 'a clusterset IP has no PTR record')
  }
}

function srv(targets: readonly string[]): string {
  return [
    'NOERROR',
    ...[...targets].sort().map((target) => `0 ${Math.floor(100 / targets.length)} 42 ${target}.`),
  ].join(' ')
}
