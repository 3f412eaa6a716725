/** The agent puts back what a join wired in the cluster's own DNS, and yields to an owner that reverts it. */
import t, { type Test } from 'tap'
import type { DnsMap, DnsMaps } from '../../agent/cluster/dns-mender.ts'
import { ClusterApiError } from '../../kubeapi/cluster-api.ts'
import { type WiredDns, addForwardBlock, formatWiredDns } from '../../model/cluster-dns/cluster-dns.ts'
import { findCondition } from '../../model/conditions.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { membershipObject } from '../support/objects/cluster-objects.ts'
import { eventually } from '../support/eventually.ts'
import { K3S, KUBEADM, NODE_LOCAL, SUBMARINER } from '../support/corefiles.ts'
import { FakeClusterset } from './fake-clusterset.ts'
import { Site } from './site.ts'

const BLOCK = { domain: 'clusterset.local', forwardTo: '10.43.0.99' }
const COREDNS = { namespace: 'kube-system', name: 'coredns', key: 'Corefile' }
const ADDITION = { namespace: 'kube-system', name: 'coredns-custom', key: 'sealane.server', text: 'ours\n' }

/** ConfigMaps as an API server keeps them: a stale write is refused. */
class FakeMaps implements DnsMaps {
  readonly objects = new Map<string, DnsMap>()
  refuses: ClusterApiError | undefined
  writes = 0
  #version = 0

  put(name: string, data: Readonly<Record<string, string>>, manager = 'kubeadm'): void {
    this.#version += 1
    const managedFields = [
      { manager: 'kube-controller', time: '2026-01-01T00:00:00Z' },
      { manager, time: '2026-11-01T00:00:00Z' },
      { manager: 'sealane', time: '2026-11-02T00:00:00Z' },
    ]
    const resourceVersion = String(this.#version)
    this.objects.set(name, { metadata: { name, namespace: 'kube-system', resourceVersion, managedFields }, data })
  }

  text(name: string, key = 'Corefile'): string {
    return this.objects.get(name)?.data?.[key] ?? ''
  }

  async read(_namespace: string, name: string): Promise<DnsMap | undefined> {
    if (this.refuses !== undefined) throw this.refuses
    return this.objects.get(name)
  }

  async write(map: DnsMap): Promise<void> {
    if (this.refuses !== undefined) throw this.refuses
    const { name, resourceVersion } = map.metadata
    if (this.objects.get(name)?.metadata.resourceVersion !== resourceVersion) {
      throw new ClusterApiError('Conflict', 'it has changed')
    }
    this.writes += 1
    this.put(name, map.data ?? {})
  }
}

async function start(t: Test, wired: Partial<WiredDns> | undefined, answers = true) {
  const clock = new FakeClock()
  const dnsMaps = new FakeMaps()
  let asked = 0
  const dns = { answers }
  const askClusterDns = () => {
    asked += 1
    return Promise.resolve(dns.answers ? ({ answers: true } as const) : ({ answers: false, said: 'NXDOMAIN' } as const))
  }
  const site = new Site(new FakeClusterset(), { id: 'paris', podCIDR: '10.42.0.0/16', clock, askClusterDns, dnsMaps })
  await site.join()
  const record = async (change: Partial<WiredDns> | undefined, phase: 'joined' | 'leaving' = 'joined') => {
    const membership = membershipObject({ clusterId: 'paris', phase, clusterset: 'test' })
    const text = change === undefined ? {} : { 'sealane.io/cluster-dns': formatWiredDns({ ...NONE, ...change }) }
    await site.api.apply({ ...membership, metadata: { ...membership.metadata, annotations: text } })
  }
  await record(wired)
  t.teardown(() => site.stop())
  /** Lets the agent ask until this much time has passed by its clock. */
  const pass = async (seconds: number): Promise<void> => {
    const end = clock.monotonic() + seconds * 1000
    while (clock.monotonic() < end) {
      const before = asked
      await eventually(async () => (await clock.advance(seconds > 600 ? 5000 : 500), asked > before), { intervalMs: 1 })
    }
  }
  const said = (): string => {
    const found = findCondition(site.api.get('Cluster', 'paris')?.status?.conditions, 'ClusterDNS')
    return found === undefined ? 'nothing' : `${found.status} ${found.reason} ${found.message}`
  }
  return { site, maps: dnsMaps, dns, pass, said, record, run: () => site.start() }
}

const NONE: WiredDns = { forwardTo: BLOCK.forwardTo, maps: [], problems: [] }

t.test(
  'an upgrade writes the Corefile and drops the additions: both are back within a minute, and it is told',
  async (t) => {
    const { site, maps, pass, said, run } = await start(t, { maps: [COREDNS, ADDITION] })
    maps.put('coredns', { Corefile: KUBEADM, other: 'kept' })
    maps.put('coredns-custom', { 'corp.server': 'theirs' })
    run()
    await pass(45)
    t.equal(maps.text('coredns'), addForwardBlock(KUBEADM, BLOCK))
    t.same(maps.objects.get('coredns-custom')?.data, { 'corp.server': 'theirs', 'sealane.server': 'ours\n' })
    t.equal(maps.text('coredns', 'other'), 'kept')
    t.match(said(), /^True Answers /)
    const events = site.api.events.filter(({ reason }) => reason === 'ClusterDnsMended')
    t.match(events[0]?.note, /^ConfigMap kube-system\/coredns, Corefile: kubeadm had removed Sealane's block/)
    const { writes } = maps
    await pass(120)
    t.equal(maps.writes, writes, 'what holds is left alone')
  },
)

t.test(
  'an owner that reverts at once wins after three repairs, by name; an hour later it is tried again',
  async (t) => {
    const { maps, pass, said, run } = await start(t, { maps: [COREDNS] })
    maps.put('coredns', { Corefile: KUBEADM }, 'addon-manager')
    run()
    for (let n = 0; n < 6; n += 1) {
      await pass(30)
      if (maps.text('coredns') !== KUBEADM) maps.put('coredns', { Corefile: KUBEADM }, 'addon-manager')
    }
    t.equal(maps.writes, 3)
    t.match(said(), /^False ClusterDnsReverted ConfigMap kube-system\/coredns, Corefile: addon-manager reverts/)
    await pass(60)
    t.equal(maps.writes, 3, 'no more')
    await pass(3600)
    t.equal(maps.writes, 4)
    await pass(40)
    t.match(said(), /^True /)
  },
)

t.test('what it may not write is told within a minute, and nothing is written', async (t) => {
  const rows: [string, (maps: FakeMaps) => void, RegExp][] = [
    ['no key', (maps) => maps.put('coredns', { x: '' }), /it has no key Corefile/],
    ['broken', (maps) => maps.put('coredns', { Corefile: '.:53 {\n' }), /cannot be read: line 1/],
    ['taken', (maps) => maps.put('coredns', { Corefile: SUBMARINER }), /something else answers clusterset.local/],
    [
      'no right',
      (maps) => {
        maps.put('coredns', { Corefile: KUBEADM })
        maps.refuses = new ClusterApiError('Forbidden', 'configmaps "coredns" is forbidden')
      },
      /is forbidden/,
    ],
  ]
  for (const [title, change, why] of rows) {
    const { maps, pass, said, run } = await start(t, { maps: [COREDNS] })
    change(maps)
    run()
    await pass(50)
    t.match(said(), /^False ClusterDnsNotMended ConfigMap kube-system\/coredns no longer forwards/, title)
    t.match(said(), why, title)
    t.equal(maps.writes, 0, title)
  }
})

t.test('a Corefile that was removed with its ConfigMap is no loss while the DNS answers', async (t) => {
  const { dns, pass, said, run } = await start(t, { maps: [COREDNS] })
  run()
  await pass(50)
  t.match(said(), /^True Answers .* but ConfigMap kube-system\/coredns no longer forwards .* it does not exist/)
  dns.answers = false
  await pass(60)
  t.match(said(), /^False ClusterDnsNotMended ConfigMap kube-system\/coredns no longer forwards .* it does not exist/)
})

t.test('additions that were removed with their ConfigMap are a loss', async (t) => {
  const { pass, said, run } = await start(t, { maps: [ADDITION] })
  run()
  await pass(50)
  t.match(said(), /^False ClusterDnsNotMended ConfigMap kube-system\/coredns-custom no longer forwards/)
})

t.test('a server that does not answer, and a write that came too late, are no loss', async (t) => {
  const { maps, pass, said, run } = await start(t, { maps: [COREDNS] })
  maps.put('coredns', { Corefile: KUBEADM })
  maps.refuses = new ClusterApiError('Unavailable', 'no answer')
  run()
  await pass(50)
  t.match(said(), /^True Answers/)
  maps.refuses = new ClusterApiError('Conflict', 'it has changed')
  await pass(30)
  maps.refuses = undefined
  await pass(30)
  t.equal(maps.text('coredns'), addForwardBlock(KUBEADM, BLOCK))
})

t.test(
  'without a record nothing is touched: not before a join, not after a leave, not where the user removed it',
  async (t) => {
    const { maps, pass, record, run } = await start(t, undefined)
    maps.put('coredns', { Corefile: KUBEADM })
    run()
    await pass(40)
    await record({ maps: [COREDNS] })
    await pass(40)
    t.equal(maps.writes, 1, 'the join wired it')
    await record(undefined)
    maps.put('coredns', { Corefile: KUBEADM })
    await pass(60)
    t.equal(maps.text('coredns'), KUBEADM, 'the annotation is gone')
  },
)

t.test('changes by hand inside the block, and in the additions, stay', async (t) => {
  const { maps, pass, said, run } = await start(t, { maps: [COREDNS, ADDITION] })
  const edited = addForwardBlock(NODE_LOCAL, BLOCK).replace('cache 5', 'cache 3600')
  maps.put('coredns', { Corefile: edited })
  maps.put('coredns-custom', { 'sealane.server': 'mine\n' })
  run()
  await pass(40)
  t.equal(maps.writes, 0)
  t.match(said(), /sealane.server was changed by hand/)
})

t.test('a problem of the join is named while the DNS answers, and is the reason when it does not', async (t) => {
  const problems = [{ reason: 'DnsCacheNotCoreDNS', message: 'DaemonSet net/x is a cache' }] as const
  const { maps, dns, pass, said, run } = await start(t, { maps: [COREDNS], problems })
  maps.put('coredns', { Corefile: addForwardBlock(K3S, BLOCK) })
  run()
  await pass(30)
  t.match(said(), /^True Answers .*; but DaemonSet net\/x is a cache \(DnsCacheNotCoreDNS\)$/)
  dns.answers = false
  await pass(60)
  t.match(said(), /^False DnsCacheNotCoreDNS DaemonSet net\/x is a cache$/)
})
