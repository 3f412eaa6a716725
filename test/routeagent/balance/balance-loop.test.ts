/** Single runs of the balancing loop, where the order of events matters. */
import t from 'tap'
import type { ObjectCache } from '../../../kubeapi/cluster-api.ts'
import { MemoryApi } from '../../../kubeapi/memory/memory-api.ts'
import { KernelError } from '../../../kernel/errors.ts'
import { FakeConnections } from '../../../kernel/fake/fake-connections.ts'
import { FakeNft } from '../../../kernel/fake/fake-nft.ts'
import { type TracePacket, traceNft } from '../../../kernel/fake/fake-nft-tracer.ts'
import type { NftStatement } from '../../../kernel/nft/nft-transaction.ts'
import { FakeRouteTable } from '../../../kernel/fake/fake-route-table.ts'
import { FakeSysctl } from '../../../kernel/fake/fake-sysctl.ts'
import {
  type Cluster,
  type ClusterAccessPolicy,
  type Endpoint,
  type EndpointSlice,
  MEMBERSHIP_NAME,
  type Namespace,
  type TrafficPolicy,
} from '../../../model/objects.ts'
import { NFT_TABLE_NODE } from '../../../model/kernel-ids.ts'
import { ANNOTATION_ENDS_OPEN } from '../../../model/services/service-shares.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { BalanceLoop } from '../../../routeagent/balance/balance-loop.ts'
import { BalancePlanner, SHARES_HOLD_MS, type Traffic } from '../../../routeagent/balance/plan-balancing.ts'
import { TrafficReader } from '../../../routeagent/balance/read-traffic.ts'
import { WITHDRAWN_HOLD_MS } from '../../../routeagent/balance/withdrawn.ts'
import { FactsReader } from '../../../routeagent/world/node-world.ts'
import { RESYNC_MS } from '../../../routeagent/world/world.ts'
import { routeAgentMetrics } from '../../../routeagent/world/metrics.ts'
import { routeAgentCaches } from '../../../routeagent/world/read-world.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { accessPolicy, clusterAccessPolicy, observedAt } from '../../support/objects/access-objects.ts'
import { clusterObject, membershipObject } from '../../support/objects/cluster-objects.ts'
import { exportObject } from '../../support/objects/service-objects.ts'
import { connectionTo, gatewayObject } from '../../support/objects/node-objects.ts'
import { ownSlice } from '../support/own-slice.ts'
import { SERVICE_CONTEXT, cluster, endpoint, membership, node, serviceImport, slice } from '../support/site.ts'

t.test('who fights for the table is put right each time, and told a bounded number of times', async (t) => {
  const { signal } = new AbortController()
  const { loop, nft, logger, metrics } = await oneNode(signal)
  await loop.reconcile(signal)
  t.teardown(loop.followTable())
  for (let i = 0; i < 20; i += 1) {
    await nft.interfere([{ verb: 'delete-table', table: NFT_TABLE_NODE }])
    await loop.reconcile(signal)
    t.not(await nft.listTable(NFT_TABLE_NODE), undefined)
  }
  t.equal(logger.lines.filter(({ level }) => level === 'warn').length, 5, 'lines')
  t.match(await metrics.text(), /drift_repairs_total\{.*nft-table.*\} 20/, 'and all are counted')
})

t.test('a look at the machine that fails is repeated by the next run', async (t) => {
  const { signal } = new AbortController()
  const { api, loop, nft, routes, facts } = await oneNode(signal)

  const links = routes.links.bind(routes)
  const remote = (): Promise<string> =>
    nft.elements(NFT_TABLE_NODE, 'remote').then((elements) => elements.map(({ key }) => key).join(' '))
  for (const { say, change, want } of [
    { say: 'at the start', change: () => undefined, want: '' },
    { say: 'later', change: () => api.put(cluster('paris', 2, '244.1.0.0/16')), want: '244.1.0.0/16' },
  ]) {
    change()
    facts.invalidate()
    routes.links = () => Promise.reject(new KernelError('EBUSY', 'ip link', 'not now'))
    await t.rejects(loop.reconcile(signal), { code: 'EBUSY' })
    routes.links = links
    await loop.reconcile(signal)
    t.equal(await remote(), want, say)
  }
  t.equal(loop.notReady, undefined)
})

t.test('a change that comes while the kernel is asked for the first time is in the first table', async (t) => {
  const { signal } = new AbortController()
  const { api, loop, nft } = await oneNode(signal)
  api.put(serviceImport('web', '245.0.0.7'))
  api.put(slice('web', 'milano', ['10.42.1.5']))
  await api.cache('ServiceImport').whenSynced(signal)
  nft.check = async () => {
    // The lists are read meanwhile.
    await new Promise((resolve) => setImmediate(resolve))
    api.put(slice('web', 'milano', ['10.42.1.6']))
  }
  await loop.reconcile(signal)
  const slots = await nft.elements(NFT_TABLE_NODE, 'slots')
  t.same(new Set(slots.map(({ value }) => value)), new Set(['10.42.1.6']))
})

t.test('a Cluster whose status alone changes, and a heartbeat of an Endpoint, are no new world', async (t) => {
  const { signal } = new AbortController()
  const { api, loop, facts } = await oneNode(signal)
  await api.cache('Endpoint').whenSynced(signal)
  await loop.reconcile(signal)
  let reads = 0
  const read = facts.read.bind(facts)
  facts.read = (until) => {
    reads += 1
    return read(until)
  }
  const milano = cluster('milano', 1, '244.0.0.0/16')
  const gw = endpoint('milano', 'gw-a')
  const rows: readonly [what: string, object: Cluster | Endpoint, want: number][] = [
    ['importers', { ...milano, status: { importedBy: [{ namespace: 'shop', name: 'web', clusters: [] }] } }, 0],
    ['the same again', milano, 0],
    ['labels', clusterObject({ ...milano.spec, labels: { tier: 'gold' } }), 1],
    ['another cluster', cluster('paris', 2, '244.1.0.0/16'), 1],
    ['a gateway', gw, 1],
    ['what it says', { ...gw, spec: { ...gw.spec, candidates: [] } }, 0],
  ]
  for (const [what, object, want] of rows) {
    reads = 0
    api.put(object)
    await loop.reconcile(signal)
    t.equal(reads, want, what)
  }
  reads = 0
  api.drop('Endpoint', gw.metadata.name)
  await loop.reconcile(signal)
  t.equal(reads, 1, 'the gateway goes')
})

t.test('access rules that have not been read admit nothing, and replace no table', async (t) => {
  const { signal } = new AbortController()
  const admitted = (nft: FakeNft): Promise<string> =>
    nft
      .elements(NFT_TABLE_NODE, 'access')
      .then((elements) => elements.map(({ key, value }) => `${key} ${value}`).join())
  const web = '10.42.1.5 . tcp . 8080 goto all-members'
  const first = await oneNode(signal, 'exports')
  first.api.put(exportObject({ name: 'web' }))
  first.api.put(ownSlice('web', ['10.42.1.5']))
  first.policies.synced = false
  await first.loop.reconcile(signal)
  t.equal(await admitted(first.nft), '', 'a new table')
  t.match(first.loop.notReady, 'first reading of policies')
  first.policies.synced = true
  first.api.put(accessPolicy('shop/other', { targetRefs: [{ name: 'other' }], from: [] }))
  await first.loop.reconcile(signal)
  t.equal(await admitted(first.nft), web, 'once they are read')
  t.equal(first.loop.notReady, undefined)

  first.policies.list = () => {
    throw new Error('a fault of ours')
  }
  first.api.put(accessPolicy('shop/closing', { from: [] }))
  await first.loop.reconcile(signal)
  t.equal(await admitted(first.nft), web, 'what cannot be planned keeps what was enforced')
  t.match(first.logger.lines.at(-1)?.message, /access rules cannot be planned/)

  const second = await oneNode(signal, 'exports', first.nft)
  second.policies.synced = false
  await second.loop.reconcile(signal)
  t.equal(await admitted(second.nft), web, 'the table of the process before stays')
  t.match(second.loop.notReady, 'first reading of policies')
  second.api.put(membership())
  await second.loop.reconcile(signal)
  t.equal(await admitted(second.nft), '', 'if all pods are exposed, none is read')
  t.equal(second.loop.notReady, undefined)
})

t.test('with all pods exposed, egress that has not been read stays limited, unless the kind is unknown', async (t) => {
  const { signal } = new AbortController()
  const isLimited = (nft: FakeNft): boolean => nft.table(NFT_TABLE_NODE)?.chains.has('leave') === true
  const policy = { ...clusterAccessPolicy('allow'), spec: { default: 'allow', egress: [] } } as const
  const first = await oneNode(signal)
  first.api.put(policy)
  first.clusterPolicies.synced = false
  await first.loop.reconcile(signal)
  t.ok(isLimited(first.nft), 'a new table')
  t.match(first.loop.notReady, 'first reading of clusterPolicies')
  first.clusterPolicies.synced = true
  await first.loop.reconcile(signal)
  t.same([isLimited(first.nft), first.loop.notReady], [true, undefined], 'as the policy says')

  const second = await oneNode(signal, undefined, first.nft)
  second.clusterPolicies.synced = false
  await second.loop.reconcile(signal)
  t.ok(isLimited(second.nft), 'the table of the process before stays')
  t.match(second.loop.notReady, 'first reading of clusterPolicies')
  second.clusterPolicies.isUnserved = true
  await second.loop.reconcile(signal)
  t.same([isLimited(second.nft), second.loop.notReady], [false, undefined], 'no such kind, so nothing is limited')
})

t.test('new connections follow the traffic policies, drained clusters and what was before them', async (t) => {
  const { signal } = new AbortController()
  const { api, loop, nft, clock } = await oneNode(signal)
  for (const [id, index] of [
    ['paris', 1],
    ['roma', 2],
    ['tokyo', 3],
  ] as const) {
    api.put(withProperties(cluster(id, index + 1, `244.${index}.0.0/16`), { 'zone.sealane.io': id }))
    for (const name of ['web', 'api']) api.put(slice(name, id, [`244.${index}.0.5`]))
  }
  api.put(serviceImport('web', '245.0.0.7'))
  api.put(serviceImport('api', '245.0.0.8'))
  const rounds: readonly (readonly [say: string, change: () => void, web: string, api?: string])[] = [
    ['no policy: all alike', () => undefined, 'paris roma tokyo'],
    ['one tier', () => api.put(trafficPolicy('one', ['web'], [{ clusters: ['paris'] }])), 'paris'],
    ['the same again', () => api.put(trafficPolicy('one', ['web'], [{ clusters: ['paris'] }])), 'paris'],
    ['a tier that nobody can serve: the next', () => api.put(slice('web', 'paris', [])), 'roma tokyo'],
    [
      'a policy of the namespace counts less',
      () => api.put(trafficPolicy('all', [], [{ clusters: ['roma'] }])),
      'roma tokyo',
      'roma',
    ],
    ['it is back', () => api.put(slice('web', 'paris', ['244.1.0.5'])), 'paris', 'roma'],
    [
      'drained: what is outside the tiers',
      () => api.put(drained(cluster('paris', 2, '244.1.0.0/16'))),
      'roma tokyo',
      'roma',
    ],
    ['an invalid policy changes nothing', () => api.put(trafficPolicy('one', ['web'], [{}])), 'roma tokyo', 'roma'],
    ['undrained', () => api.put(cluster('paris', 2, '244.1.0.0/16')), 'paris', 'roma'],
    ['the policy is gone', () => api.drop('TrafficPolicy', 'one', 'shop'), 'roma', 'roma'],
    ['all policies are gone', () => api.drop('TrafficPolicy', 'all', 'shop'), 'paris roma tokyo'],
  ]
  for (const [say, change, web, other = 'paris roma tokyo'] of rounds) {
    change()
    await clock.advance(SHARES_HOLD_MS)
    await loop.reconcile(signal)
    const found = await clustersOf(nft)
    t.same([found('245.0.0.7'), found('245.0.0.8')], [web, other], say)
  }
})

t.test('a silent link that goes down while the machine is read gets no calls in between', async (t) => {
  const { signal } = new AbortController()
  const { api, clock, loop, nft, facts } = await oneNode(signal)
  for (const [id, index] of [
    ['paris', 1],
    ['roma', 2],
  ] as const) {
    api.put(cluster(id, index + 1, `244.${index}.0.0/16`))
    api.put(slice('web', id, [`244.${index}.0.5`]))
  }
  api.put(serviceImport('web', '245.0.0.7'))
  api.put(trafficPolicy('one', ['web'], [{ clusters: ['paris'] }, { any: {} }]))
  const say = (paris: 'up' | 'unanswered' | 'down'): void => {
    const silent = { ...connectionTo('paris', 'up'), cause: 'ProbesUnanswered' as const }
    const first = paris === 'unanswered' ? silent : connectionTo('paris', paris)
    api.put(gatewayObject('worker', { connections: [first, connectionTo('roma', 'up')] }))
  }
  const served = async (): Promise<string> => {
    await clock.advance(SHARES_HOLD_MS)
    await loop.reconcile(signal)
    return (await clustersOf(nft))('245.0.0.7')
  }
  say('up')
  t.equal(await served(), 'paris')
  say('unanswered')
  t.equal(await served(), 'roma')
  const read = facts.read.bind(facts)
  facts.read = async (until) => {
    facts.read = read
    // The gateway removes its routes first, which makes this node look at the machine.
    say('down')
    return read(until)
  }
  loop.factsChanged()
  t.equal(await served(), 'roma', 'at once')
  t.equal(await served(), 'roma', 'and from then on')
  say('up')
  t.equal(await served(), 'paris', 'it is back')
})

t.test(
  'open connections to a cluster, or a service of it, that is drained now are ended while another one serves',
  async (t) => {
    const { signal } = new AbortController()
    const { api, loop, nft, clock } = await oneNode(signal)
    const paris = cluster('paris', 2, '244.1.0.0/16')
    const [http, sctp, udp] = [
      { name: 'http', protocol: 'TCP', port: 80 } as const,
      { name: 'sctp', protocol: 'SCTP', port: 81 } as const,
      { name: 'udp', protocol: 'UDP', port: 82 } as const,
    ]
    const ports = [http, sctp, udp]
    const of = (id: string, address: string, annotations = {}): EndpointSlice => {
      const made = slice('web', id, [address], ports)
      return { ...made, metadata: { ...made.metadata, annotations } }
    }
    for (const object of [paris, cluster('roma', 3, '244.2.0.0/16'), serviceImport('web', '245.0.0.7', { ports })])
      api.put(object)
    api.put(of('paris', '244.1.0.5'))
    api.put(of('roma', '244.2.0.5'))
    const marks = { 'sealane.io/drained': 'true', 'sealane.io/drained-now': 'true' }
    const both = '245.0.0.7 . sctp . 81 . 244.1.0.5 245.0.0.7 . tcp . 80 . 244.1.0.5'
    const rounds: readonly (readonly [say: string, change: () => void, want: string])[] = [
      ['nothing is drained', () => undefined, ''],
      ['drained', () => api.put(drained(paris)), ''],
      ['drained now; UDP flows are forgotten instead', () => api.put(drainedNow(paris)), both],
      ['it is the last one that is ready', () => api.put(of('roma', '244.2.0.5!')), ''],
      ['not any more', () => api.put(of('roma', '244.2.0.5')), both],
      ['undrained', () => api.put(paris), ''],
      ['the exporter drains the service now', () => api.put(of('paris', '244.1.0.5', marks)), both],
      [
        'the second mark alone says nothing',
        () => api.put(of('paris', '244.1.0.5', { 'sealane.io/drained-now': 'true' })),
        '',
      ],
    ]
    const open = {
      iif: 'pod0',
      saddr: '10.42.1.5',
      sport: 7000,
      daddr: '245.0.0.7',
      ctState: 'established',
    } as const
    const answer = (
      packet: Pick<TracePacket, 'l4proto' | 'dport' | 'replySaddr'> & Partial<Pick<TracePacket, 'daddr' | 'rst'>>,
    ): string => {
      const ends = (['prerouting', 'output'] as const).map((hook) => {
        // The fake does not translate later packets, so those of the node itself are refused further on.
        const { answer = 'accept' } = traceNft(nft, hook, { ...open, ...packet })
        return answer === 'host-unreachable' ? 'accept' : answer
      })
      return [...new Set(ends)].join(' or ')
    }
    for (const [say, change, want] of rounds) {
      change()
      await clock.advance(SHARES_HOLD_MS)
      await loop.reconcile(signal)
      const found = (await nft.elements(NFT_TABLE_NODE, 'ended', signal)).map(({ key }) => key)
      t.equal(found.sort().join(' '), want, say)
      const isEnded = want !== ''
      const tcp = { replySaddr: '244.1.0.5', l4proto: 'tcp', dport: 80 } as const
      t.equal(answer(tcp), isEnded ? 'tcp reset' : 'accept', `TCP: ${say}`)
      t.equal(answer({ ...tcp, rst: true }), 'accept', 'the server hears the reset of the client')
      t.equal(answer({ ...tcp, replySaddr: '244.2.0.5' }), 'accept', 'the other endpoint')
      t.equal(answer({ ...tcp, l4proto: 'sctp', dport: 81 }), isEnded ? 'port-unreachable' : 'accept', `SCTP: ${say}`)
      t.equal(answer({ ...tcp, l4proto: 'udp', dport: 82 }), 'accept', 'UDP')
      t.equal(answer({ ...tcp, daddr: '244.1.0.5' }), 'accept', 'not called through the clusterset IP')
    }
  },
)

t.test('connections to a cluster that is drained now keep their entries while the kernel ends none', async (t) => {
  const unsupported = new KernelError('EOPNOTSUPP', 'nft -f -', 'Operation not supported')
  const ends = (statements: readonly NftStatement[]): boolean =>
    statements.some((one) => one.verb === 'add-rule' && one.chain.startsWith('ended-'))
  type Breaking = (nft: FakeNft) => () => void
  const withCheck =
    (error: KernelError): Breaking =>
    (nft) => {
      const check = nft.check.bind(nft)
      nft.check = () => Promise.reject(error)
      return () => void (nft.check = check)
    }
  const withRun =
    (error: KernelError, refuses: (statements: readonly NftStatement[]) => boolean): Breaking =>
    (nft) => {
      const run = nft.run.bind(nft)
      nft.run = (statements, until) => (refuses(statements) ? Promise.reject(error) : run(statements, until))
      return () => void (nft.run = run)
    }
  const none: Breaking = () => () => undefined
  interface Row {
    readonly say: string
    /** Before the first table. */
    readonly atStart?: Breaking
    /** With the drain. */
    readonly atDrain?: Breaking
    /** Whether it forgets the entry once all is mended. */
    readonly mends: boolean
  }
  const rows: readonly Row[] = [
    { say: 'the kernel lacks the rules', atStart: withCheck(unsupported), mends: false },
    { say: 'it refuses the first table with the rules', atStart: withRun(unsupported, ends), mends: false },
    { say: 'it is not known', atStart: withCheck(new KernelError('TIMEOUT', 'nft -f -', 'no answer')), mends: true },
    {
      say: 'it takes no changes',
      atDrain: withRun(new KernelError('EBUSY', 'nft -f -', 'not now'), () => true),
      mends: true,
    },
  ]
  for (const { say, atStart = none, atDrain = none, mends } of rows) {
    const stopping = new AbortController()
    const { signal } = stopping
    const nft = new FakeNft()
    const flows = new FakeConnections()
    const mendStart = atStart(nft)
    const { api, loop, clock } = await oneNode(signal, undefined, nft, flows)
    const entries = async (): Promise<number> => {
      let count = 0
      const called = { family: 4, value: 0n, length: 0 } as const
      await flows.calls({ called, state: 'answered', limit: 10 }, () => (count += 1))
      return count
    }
    const paris = cluster('paris', 2, '244.1.0.0/16')
    for (const object of [paris, cluster('roma', 3, '244.2.0.0/16'), serviceImport('web', '245.0.0.7')]) api.put(object)
    api.put(slice('web', 'paris', ['244.1.0.5']))
    api.put(slice('web', 'roma', ['244.2.0.5']))
    const running = loop.run(signal).catch(() => undefined)
    await clock.advance(RESYNC_MS)
    const mendDrain = atDrain(nft)
    api.put(drainedNow(paris))
    flows.openCall('10.42.1.5:7000', '245.0.0.7:80', '244.1.0.5:8080', 'answered')
    // It had a packet after the drain, and goes on later.
    flows.idleSeconds.set('10.42.1.5:7000', 40)
    await clock.advance(300_000)
    t.equal(await entries(), 1, say)
    mendStart()
    mendDrain()
    await clock.advance(30_000)
    t.equal(await entries(), 1, `${say}: its client may have sent nothing since the kernel ends connections`)
    await clock.advance(300_000)
    t.equal(await entries(), mends ? 0 : 1, `${say}: later`)
    stopping.abort()
    await running
  }
})

t.test('a kernel that cannot end open connections gets a table without such rules', async (t) => {
  const { signal } = new AbortController()
  const hasEnding = (nft: FakeNft): boolean => nft.table(NFT_TABLE_NODE)?.chains.has('ended-forwarded') === true
  const unsupported = (): KernelError => new KernelError('EOPNOTSUPP', 'nft -f -', 'Operation not supported')
  const ends = (statements: readonly NftStatement[]): boolean =>
    statements.some((one) => one.verb === 'add-rule' && one.chain.startsWith('ended-') && one.rule.includes('reject'))
  const said = (logger: CapturingLogger): number =>
    logger.messages('info').filter((line) => line === 'a drain with --now ends no open TCP connections').length

  await t.test('the check says so', async (t) => {
    const { loop, nft, logger, clock } = await oneNode(signal)
    let checks = 0
    nft.check = (statements) => {
      if (ends(statements)) checks += 1
      return Promise.reject(unsupported())
    }
    for (let i = 0; i < 3; i += 1) {
      await loop.reconcile(signal)
      await clock.advance(RESYNC_MS)
    }
    t.same([hasEnding(nft), checks, said(logger)], [false, 1, 1])
  })

  await t.test('the check accepts rules that the transaction does not (Linux 5.6 to 5.8)', async (t) => {
    const { loop, nft, logger, clock } = await oneNode(signal)
    const run = nft.run.bind(nft)
    let refused = 0
    nft.run = (statements, until) => {
      if (!ends(statements)) return run(statements, until)
      refused += 1
      return Promise.reject(unsupported())
    }
    await loop.reconcile(signal)
    t.ok(nft.tableNames().includes(NFT_TABLE_NODE), 'the table is there all the same')
    t.equal(loop.failure, undefined)
    for (let i = 0; i < 3; i += 1) {
      await clock.advance(RESYNC_MS)
      await loop.reconcile(signal)
    }
    t.same([hasEnding(nft), refused, said(logger)], [false, 1, 1], 'it was tried once')
    t.equal(nft.accepted.length, 1, 'and the table is replaced no more')
  })

  await t.test('the check fails for another reason, and is repeated', async (t) => {
    const { loop, nft, logger, clock } = await oneNode(signal)
    const check = nft.check.bind(nft)
    nft.check = () => Promise.reject(new KernelError('TIMEOUT', 'nft --check -f -', 'no answer'))
    for (let i = 0; i < 2; i += 1) {
      await loop.reconcile(signal)
      t.equal(hasEnding(nft), false)
      await clock.advance(RESYNC_MS)
    }
    t.equal(said(logger), 1)
    nft.check = check
    await loop.reconcile(signal)
    t.equal(hasEnding(nft), true, 'the kernel can')
  })

  await t.test('a table that is refused for another reason says nothing about it', async (t) => {
    const { loop, nft, clock } = await oneNode(signal)
    nft.failNext(new KernelError('EBUSY', 'nft -f -', 'not now'))
    await t.rejects(loop.reconcile(signal), { code: 'EBUSY' })
    await loop.reconcile(signal)
    t.equal(hasEnding(nft), true)
    await nft.interfere([{ verb: 'delete-table', table: NFT_TABLE_NODE }])
    nft.failNext(new KernelError('ENOENT', 'nft -f -', 'no such table'))
    await clock.advance(RESYNC_MS)
    await t.rejects(loop.reconcile(signal), { code: 'ENOENT' })
    await loop.reconcile(signal)
    t.equal(hasEnding(nft), true, 'it was accepted before')
  })
})

t.test('open connections to a withdrawn service are ended, unless its namespace goes', async (t) => {
  const rows: readonly (readonly [say: string, namespace: Partial<Namespace> | undefined, isEnded: boolean])[] = [
    ['it stays', {}, true],
    ['it is about to go', { status: { phase: 'Terminating' } }, false],
    ['it has gone', undefined, false],
  ]
  for (const [say, namespace, isEnded] of rows) {
    const stopping = new AbortController()
    const { api, loop, clock, nft } = await oneNode(stopping.signal)
    const web = slice('web', 'paris', ['244.1.0.5'])
    const annotations = { [ANNOTATION_ENDS_OPEN]: 'true' }
    for (const object of [cluster('paris', 2, '244.1.0.0/16'), serviceImport('web', '245.0.0.7')]) api.put(object)
    api.put({ ...web, metadata: { ...web.metadata, annotations } })
    const running = loop.run(stopping.signal).catch(() => undefined)
    await clock.advance(1000)
    if (namespace !== undefined) {
      api.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'shop' }, ...namespace })
    }
    api.drop('EndpointSlice', web.metadata.name, 'shop')
    api.drop('ServiceImport', 'web', 'shop')
    await clock.advance(2 * WITHDRAWN_HOLD_MS)
    const ended = (await nft.elements(NFT_TABLE_NODE, 'ended')).map(({ key }) => key)
    t.strictSame(ended, isEnded ? ['245.0.0.7 . tcp . 80 . 244.1.0.5'] : [], say)
    stopping.abort()
    await running
  }
})

t.test('policies that have not been read are waited for, and not for ever', async (t) => {
  const { signal } = new AbortController()
  const first = await oneNode(signal)
  for (const { say, node, waitMs } of [
    { say: 'no table yet', node: first, waitMs: 2000 },
    { say: 'a table of the process before', node: await oneNode(signal, undefined, first.nft), waitMs: 10_000 },
  ]) {
    const { loop, clock, api, traffic } = node
    traffic.synced = false
    api.drop('Membership', MEMBERSHIP_NAME)
    const running = new AbortController()
    const stopped = loop.run(running.signal).catch(() => undefined)
    // Not while something else keeps the node from starting.
    await clock.advance(60_000)
    t.match(loop.notReady, 'to join a clusterset', say)
    api.put(membership())
    await clock.advance(waitMs - 1)
    t.match([loop.notReady, loop.isGuarding()], ['first reading of traffic policies', false], say)
    await clock.advance(60)
    t.same([loop.notReady, loop.isGuarding()], [undefined, true], `${say}: over, without another event`)
    running.abort()
    await stopped
  }
  const read = await oneNode(signal)
  await read.loop.reconcile(signal)
  t.same([read.loop.notReady, read.clock.pending('timer')], [undefined, []], 'all are read: nothing is waited for')
})

t.test('a change of a cluster plans only the services whose shares it may change', async (t) => {
  const { signal } = new AbortController()
  const { api, caches } = await oneNode(signal)
  const reader = new TrafficReader(caches)
  t.teardown(reader.follow(() => undefined))
  const planner = new BalancePlanner(SERVICE_CONTEXT)
  const paris = cluster('paris', 2, '244.1.0.0/16')
  for (const object of [paris, cluster('roma', 3, '244.2.0.0/16')]) api.put(object)
  for (const name of ['web', 'api', 'far', 'chosen']) {
    const spec = name === 'chosen' ? { clusterSelectors: [{ properties: { matchExpressions: [] } }] } : {}
    planner.setImport(serviceImport(name, `245.0.0.${7 + planner.ports().size}`, spec as object))
    planner.setSlice(slice(name, name === 'far' ? 'roma' : 'paris', ['244.1.0.5']))
  }
  const planned: string[] = []
  const setTraffic = planner.setTraffic.bind(planner)
  planner.setTraffic = (divided, concerns) => {
    setTraffic(divided && counting(divided, planned), concerns)
  }
  const plannedBy = (change: () => void): string => {
    planned.length = 0
    change()
    reader.update(planner)
    planner.takeChanges()
    return planned.splice(0).sort().join(' ')
  }
  const put = (object: Cluster | TrafficPolicy) => (): void => {
    api.put(object)
  }
  const silent =
    (...ids: string[]) =>
    (): void => {
      reader.setUnanswered(new Set(ids))
    }
  const egress = (rules: ClusterAccessPolicy['spec']['egress']) => (): void => {
    const { spec, ...policy } = clusterAccessPolicy('allow')
    api.put({ ...policy, spec: { ...spec, ...(rules === undefined ? {} : { egress: rules }) } })
  }
  const rows: readonly (readonly [say: string, change: () => void, want: string])[] = [
    ['the first time', () => undefined, 'api chosen far web'],
    ['nothing', () => undefined, ''],
    ['properties', put(withProperties(paris, { 'zone.sealane.io': 'x' })), 'chosen'],
    ['drained', put(drained(paris)), 'api chosen web'],
    ['the same again', put(drained(paris)), ''],
    ['drained now', put(drainedNow(paris)), 'api chosen web'],
    ['undrained', put(paris), 'api chosen web'],
    ['a cluster that is drained when it goes', put(drained(paris)), 'api chosen web'],
    ['it goes', () => api.drop('Cluster', 'paris'), 'api chosen web'],
    ['it comes', put(paris), 'chosen'],
    ['a policy', put(trafficPolicy('one', ['web'], [{ clusters: ['paris'] }])), 'web'],
    ['properties, with a policy', put(withProperties(paris, { 'zone.sealane.io': 'x' })), 'chosen web'],
    ['of another cluster', put(cluster('oslo', 4, '244.3.0.0/16')), 'chosen'],
    ['of this cluster', put(withProperties(cluster('milano', 1, '244.0.0.0/16'), { a: 'b' })), 'chosen web'],
    ['a tier by selector', put(trafficPolicy('one', ['far'], [BY_LABEL])), 'far web'],
    ['labels of any cluster', put(cluster('lyon', 5, '244.4.0.0/16')), 'chosen far'],
    ['not valid, about others', put(trafficPolicy('one', ['api'], [{}])), 'far'],
    ['valid again, about those', put(trafficPolicy('one', ['api'], [{ clusters: ['paris'] }])), 'api far'],
    ['egress rules that shut a cluster', egress([{ clusters: ['paris'] }]), 'chosen far'],
    ['others that shut the same', egress([{ clusters: ['paris'], namespaces: ['shop'] }]), ''],
    ['those that open it and shut another', egress([{ clusters: ['roma'] }]), 'api chosen far web'],
    ['labels by which they open it', egress([{ selector: { matchLabels: { a: 'b' } } }]), 'chosen far'],
    ['of the cluster', put(labelled(cluster('roma', 3, '244.2.0.0/16'), { a: 'b' })), 'chosen far'],
    ['no rules', egress(undefined), 'api chosen web'],
    ['a cluster that answers nothing for a moment', silent('paris'), 'api chosen'],
    ['the same again', silent('paris'), ''],
    ['another one instead', silent('roma'), 'api chosen'],
    ['none', silent(), 'chosen'],
  ]
  for (const [say, change, want] of rows) t.equal(plannedBy(change), want, say)
})

t.test('a route agent that starts while a policy is not valid follows the version that its status keeps', async (t) => {
  const { signal } = new AbortController()
  const { api, caches } = await oneNode(signal)
  const planner = new BalancePlanner(SERVICE_CONTEXT)
  for (const [i, id] of ['paris', 'roma'].entries()) api.put(cluster(id, 2 + i, `244.${1 + i}.0.0/16`))
  for (const name of ['web', 'api']) {
    planner.setImport(serviceImport(name, name === 'web' ? '245.0.0.7' : '245.0.0.8'))
    for (const [i, id] of ['paris', 'roma'].entries()) planner.setSlice(slice(name, id, [`244.${1 + i}.0.5`]))
  }
  let traffic: Traffic | undefined
  planner.setTraffic = (divided) => (traffic = divided)
  const only = (reader: TrafficReader, name: string): string => {
    reader.update(planner)
    const slices = ['paris', 'roma'].map((id, i) => slice(name, id, [`244.${1 + i}.0.5`]))
    const shares = traffic?.of(serviceImport(name, '245.0.0.7'), slices)?.clusterShares ?? new Map<string, number>()
    return [...shares].flatMap(([id, share]) => (share > 0 ? [id] : [])).join(' ')
  }
  const follow = (): TrafficReader => {
    const reader = new TrafficReader(caches)
    t.teardown(reader.follow(() => undefined))
    return reader
  }
  api.put(trafficPolicy('one', ['web'], [{ clusters: ['paris'] }]))
  const old = follow()
  t.equal(only(old, 'web'), 'paris')
  api.put(trafficPolicy('one', ['api'], [{ clusters: ['roma'], weights: { roma: 0 } }]))
  t.equal(only(old, 'web'), 'paris', 'the one that has seen it')
  const young = follow()
  t.equal(only(young, 'web'), '', 'one that starts, until the agent has said it')
  const object = api.get('TrafficPolicy', 'one', 'shop')!
  const { spec } = trafficPolicy('one', ['web'], [{ clusters: ['paris'] }])
  await api.applyStatus({
    ...object,
    status: { conditions: observedAt(2), inForce: { uid: 'one', generation: 1, spec } },
  })
  t.equal(only(young, 'web'), 'paris')
  t.equal(only(follow(), 'web'), 'paris', 'one that starts later')
  api.put(trafficPolicy('one', ['api'], [{ clusters: ['roma'] }]))
  for (const reader of [old, young]) t.same([only(reader, 'web'), only(reader, 'api')], ['', 'roma'], 'valid again')
  api.put(trafficPolicy('one', ['web'], [{ clusters: ['paris'] }]))
  api.put(trafficPolicy('one', ['web'], [{ clusters: ['roma'], weights: { roma: 0 } }]))
  t.same([only(old, 'web'), only(old, 'api')], ['paris', ''], 'the later one of two versions between two plans')
})

const BY_LABEL = { selector: { labels: { matchLabels: { a: 'b' } } } }

function labelled(object: Cluster, labels: Readonly<Record<string, string>>): Cluster {
  return { ...object, spec: { ...object.spec, labels } }
}

function counting(traffic: Traffic, planned: string[]): Traffic {
  return {
    of(service, slices) {
      planned.push(service.metadata.name)
      return traffic.of(service, slices)
    },
  }
}

t.test('readiness that changes a thousand times a second changes shares ten times', async (t) => {
  const { signal } = new AbortController()
  const { api, loop, nft, clock } = await oneNode(signal)
  api.put(cluster('paris', 2, '244.1.0.0/16'))
  api.put(serviceImport('web', '245.0.0.7'))
  api.put(slice('web', 'milano', ['10.42.1.5']))
  api.put(slice('web', 'paris', ['244.1.0.5']))
  api.put(trafficPolicy('one', ['web'], [{ clusters: ['paris', 'milano'], weights: { paris: 9, milano: 1 } }]))
  const running = new AbortController()
  const stopped = loop.run(running.signal).catch(() => undefined)
  await clock.advance(1000)
  let changed = 0
  const run = nft.run.bind(nft)
  nft.run = (statements, until) => {
    if (JSON.stringify(statements).includes('245.0.0.7')) changed += 1
    return run(statements, until)
  }
  for (let i = 0; i < 1000; i += 1) {
    api.put(slice('web', 'paris', [i % 3 === 0 ? '244.1.0.5!' : '244.1.0.5']))
    await clock.advance(1)
  }
  t.ok(changed >= 3 && changed <= 10, `${changed} changes`)
  api.put(slice('web', 'paris', ['244.1.0.6']))
  await clock.advance(200)
  t.match(nft.toString(), '244.1.0.6', 'the last state comes without another event')
  running.abort()
  await stopped
})

/** Names the clusters to which new connections to an address go. */
async function clustersOf(nft: FakeNft): Promise<(address: string) => string> {
  const slots = await nft.elements(NFT_TABLE_NODE, 'slots')
  const names = ['', 'paris', 'roma', 'tokyo']
  return (address) => {
    const targets = slots
      .filter(({ key }) => key.startsWith(`${address} `))
      .map(({ value = '' }) => value.split('.')[1])
    return [...new Set(targets.map((index) => names[Number(index)]))].sort().join(' ')
  }
}

function trafficPolicy(name: string, services: readonly string[], order: readonly object[]): TrafficPolicy {
  const spec = { targetRefs: services.map((one) => ({ name: one })), order } as TrafficPolicy['spec']
  return {
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'TrafficPolicy',
    metadata: { name, namespace: 'shop', uid: name },
    spec,
  }
}

function drained(object: Cluster): Cluster {
  return { ...object, spec: { ...object.spec, drained: true } }
}

function drainedNow(object: Cluster): Cluster {
  return { ...object, spec: { ...object.spec, drained: true, drainedNow: true } }
}

function withProperties(object: Cluster, properties: Record<string, string>): Cluster {
  return { ...object, spec: { ...object.spec, properties } }
}

async function oneNode(signal: AbortSignal, exposure?: 'exports', nft = new FakeNft(), flows?: FakeConnections) {
  const api = new MemoryApi()
  api.put(exposure === undefined ? membership() : membershipObject({ exposure }))
  api.put(node('worker', '192.168.7.11', '10.42.1.0/24'))
  api.put(cluster('milano', 1, '244.0.0.0/16'))
  const real = routeAgentCaches(api)
  const { policies: own, clusterPolicies: whole, exports } = real.access
  await Promise.all([real.slices, own, whole, exports].map((cache) => cache.whenSynced(signal)))
  const [policies, clusterPolicies, traffic] = [gated(own), gated(whole), gated(real.traffic.policies)]
  const caches = {
    ...real,
    access: { ...real.access, policies, clusterPolicies },
    traffic: { ...real.traffic, policies: traffic },
  }
  const routes = new FakeRouteTable({ links: [{ name: 'eth0' }] })
  const facts = new FactsReader({ routes, sysctl: new FakeSysctl({}) })
  const all = createMetrics('routeagent')
  const logger = new CapturingLogger()
  const clock = new FakeClock()
  const counted = flows === undefined ? {} : { flows }
  const deps = { caches, nft, facts, clock, logger, metrics: routeAgentMetrics(all), ...counted }
  const loop = new BalanceLoop(deps, { node: 'worker' })
  loop.follow()
  return { api, caches, clock, loop, policies, clusterPolicies, traffic, nft, routes, facts, logger, metrics: all }
}

/** The cache of which a test says whether it has been read. */
function gated<T>(read: ObjectCache<T>) {
  return {
    synced: true,
    isUnserved: false,
    list: () => read.list(),
    get: (name: string, namespace?: string) => read.get(name, namespace),
    onChange: (listener: Parameters<typeof read.onChange>[0]) => read.onChange(listener),
    whenSynced: (until: AbortSignal) => read.whenSynced(until),
  }
}
