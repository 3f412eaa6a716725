/** The page about a broker: all members, problems first, each section with its command, and what only members know. */
import { h } from 'preact'
import { renderToString } from 'preact-render-to-string'
import t from 'tap'
import { Page, createModel, summaryOf, takeSections } from '../../console/page/page.ts'
import { type BrokerFacts, type MemberFact, planLook, planSeveral } from '../../console/state/state.ts'

const NOW = '2026-11-25T12:00:00.000Z'
const MS = Date.parse(NOW)

function member(id: string, more: Partial<MemberFact> = {}): MemberFact {
  return {
    ...{ id, state: 'in contact', sinceMs: MS - 60_000, lastSeenMs: MS - 1000 },
    ...{ podCIDRs: ['10.42.0.0/16'], globalCIDRs: [], notes: [], labels: { region: 'eu' } },
    reported: {
      ...{ versions: ['0.1.0'], lanes: { up: 2, of: 3 }, exports: { count: 4, failed: 1 } },
      problems: [],
    },
    ...more,
  }
}

function brokerFacts(more: Partial<BrokerFacts> = {}): BrokerFacts {
  const service = (name: string, exporters: readonly string[], importers: readonly string[]) => ({
    ...{ namespace: 'shop', name, type: 'ClusterSetIP', ips: ['245.0.0.1'], drainedAt: [] },
    ...{ exporters, exportersCount: exporters.length, importers, importersCount: importers.length },
  })
  return {
    ...{ takenAt: NOW, clusterset: 'demo', target: 'broker with the state /b' },
    ...{ flags: '--state /b --clusterset demo', brokerFlags: '--state /b', problems: [], waiting: [] },
    members: [
      member('milano'),
      member('oslo', { state: 'silent', lastSeenMs: MS - 600_000 }),
      member('rome', { drained: true }),
      member('gone', { state: 'evicted' }),
    ],
    ...{ accessDefault: 'deny', topology: { topology: { mode: 'hub-and-spoke' }, number: 3 } },
    published: {
      ...{ t: 'known', at: NOW },
      value: {
        gateways: [
          { cluster: 'milano', node: 'gw1', lane: 0, addresses: ['192.0.2.1:4500'] },
          { cluster: 'oslo', node: 'gw1', lane: 0, addresses: [] },
        ],
        ...{ gatewaysCount: 5, servicesCount: 2 },
        services: [service('db', ['oslo'], []), service('web', ['milano', 'oslo'], ['rome'])],
      },
    },
    ...more,
  }
}

function wordsOf(facts: BrokerFacts): string {
  const model = createModel(MS + 5000, undefined)
  takeSections(model, planLook(facts).state)
  return renderToString(h(Page, { model }))
}

t.test('what the broker knows, with the commands that show it', async (t) => {
  const { state } = planLook(brokerFacts())
  t.match(state.about, {
    ...{ health: 'degraded', clusterset: 'demo', command: 'sealane broker status --state /b' },
    counts: { problems: 1, clustersReached: 2, clusters: 3, linksUp: 6, links: 9, services: 2 },
    broker: { accessDefault: 'deny', topology: 'hub-and-spoke', topologyChanges: 3, drained: 1, waiting: 0 },
  })
  t.match(state.problems.rows, [
    { severity: 'degraded', reason: 'Silent', subject: 'cluster oslo', since: '2026-11-25T11:50:00.000Z' },
  ])
  t.same(
    state.clusters.rows.map(({ cluster, state, drained = false }) => [cluster, state, drained]),
    [
      ['oslo', 'silent', false],
      ['milano', 'in contact', false],
      ['rome', 'in contact', true],
    ],
    'who is silent comes first, and who has left is none',
  )
  t.match(state.clusters.rows[1], {
    ...{ versions: ['0.1.0'], exports: { count: 4, failed: 1 }, lastSeen: '2026-11-25T11:59:59.000Z' },
    ...{ podCIDRs: ['10.42.0.0/16'], labels: ['region=eu'] },
  })
  t.same(
    state.gateways.rows.map(({ cluster, state, addresses }) => [cluster, state, addresses]),
    [
      ['milano', 'published', ['192.0.2.1:4500']],
      ['oslo', 'silent', []],
    ],
  )
  t.equal(state.gateways.more, 3)
  t.same(
    state.services.rows.map(({ name, state, exporters, importers }) => [name, state, exporters, importers]),
    [
      ['db', 'silent', ['oslo'], []],
      ['web', 'exported', ['milano', 'oslo'], ['rome']],
    ],
  )
  const { about, times: _, format: _format, ...sections } = state
  const commands = Object.values(sections).flatMap(({ command, commands = [] }) => [command, ...commands])
  const all = new Set([...commands, ...(about.broker?.commands ?? [])])
  for (const words of ['members', 'cluster list -o wide', 'broker gateways', 'broker services', 'topology show']) {
    t.ok(all.has(`sealane ${words} --state /b --clusterset demo`), words)
  }
  for (const name of ['links', 'flows', 'calls', 'denied'] as const)
    t.match(state[name].note, /Only members know/, name)
})

t.test('problems of every kind, the worst first', async (t) => {
  const reported = member('x').reported!
  const { problems } = planLook(
    brokerFacts({
      problems: [
        { health: 'degraded', text: 'only one broker replica runs' },
        { health: 'healthy', text: 'only one etcd endpoint is configured' },
      ],
      members: [
        member('a', { misuse: { address: '192.0.2.9', atMs: MS } }),
        member('b', { forkedAtMs: MS }),
        member('c', { forkedAtMs: MS, rekeyedAtMs: MS }),
        member('d', { clashes: ['services of d are over pods of a'], notes: ['10.42.0.0/16 is translated'] }),
        member('e', {
          reported: {
            ...reported,
            problems: [
              { code: 'LaneProbeTimeout', severity: 'degraded', count: 2 },
              { code: 'OfALaterRelease', severity: 'notice', count: 1 },
            ],
          },
        }),
      ],
      waiting: [
        { id: 'new', what: 'join', state: 'waiting', sinceMs: MS },
        { id: 'old', what: 'join', state: 'refused', sinceMs: MS },
      ],
      topology: { topology: { mode: 'groups' }, number: 1, ignoredBy: ['b-0'] },
    }),
  ).state
  t.same(
    problems.rows.map(({ severity, reason, subject }) => `${severity} ${reason} ${subject}`),
    [
      'down CertificateCopied cluster a',
      'down IdentityForked cluster b',
      'degraded BrokerImpaired broker',
      'degraded TopologyNotSupported topology',
      'degraded MemberRekeyed cluster c',
      'degraded ServicesOverPods cluster d',
      'degraded LaneProbeTimeout cluster e',
      'notice AddressesNotAsStated cluster d',
      'notice OfALaterRelease cluster e',
      'notice JoinAwaitsApproval cluster new',
    ],
  )
  for (const { mend, commands, reason } of problems.rows) {
    t.ok(mend !== '' && commands.every((one) => one.startsWith('sealane ')), reason)
  }
})

t.test('a state that no broker serves: nobody is in contact', async (t) => {
  const { about, problems, clusters } = planLook(brokerFacts({ unserved: 'no broker runs with /b' })).state
  t.equal(about.health, 'down')
  t.equal(about.counts.clustersReached, 0)
  t.match(problems.rows[0], { severity: 'down', reason: 'BrokerSilent', seen: 'no broker runs with /b' })
  t.ok(clusters.rows.every(({ state }) => state === 'silent'))
})

t.test('a broker of an earlier release says why there are no services', async (t) => {
  const why = 'the release of the broker does not support this command'
  const { services, gateways, clusters } = planLook(brokerFacts({ published: { t: 'none', why } })).state
  t.same([services.note, gateways.note, clusters.rows.length], [why, why, 3])
})

t.test('events: members, services and problems that come and go', async (t) => {
  const first = planLook(brokerFacts())
  t.equal(first.state.events.rows.length, 0)
  const known = brokerFacts().published
  const value = known.t === 'known' ? known.value : undefined
  const facts = brokerFacts({
    takenAt: '2026-11-25T12:00:02.000Z',
    members: [member('milano', { state: 'silent' }), member('oslo'), member('rome'), member('new')],
    published: { t: 'known', at: NOW, value: { ...value!, services: value!.services.slice(1), servicesCount: 1 } },
  })
  t.same(
    planLook(facts, first).state.events.rows.map(({ kind, change, subject }) => `${kind} ${change} ${subject}`),
    [
      'problem begins Silent: cluster milano',
      'problem ends Silent: cluster oslo',
      'member silent milano',
      'member in contact oslo',
      'member in contact rome',
      'member in contact new',
      'service disappears shop/db',
    ],
  )
  const shortened = brokerFacts({
    published: { t: 'known', at: NOW, value: { ...value!, services: value!.services.slice(1) } },
  })
  t.same(planLook(shortened, first).state.events.rows, [], 'a service that is not in a shortened list has not gone')
})

t.test('the page as a person reads it', async (t) => {
  const html = wordsOf(brokerFacts())
  const words = html.replaceAll(/<[^>]+>/g, ' ').replaceAll(/\s+/g, ' ')
  for (const said of [
    /Sealane: broker/,
    /2 of 3 members in contact/,
    /services without a policy: deny/,
    /topology hub-and-spoke \(change 3\)/,
    /1 drained/,
    /only members know them/,
    /● in contact ▲ drained/,
    /version 0\.1\.0, 4 exports \(1 failed\)/,
    /milano gw1 ■ published 0 192\.0\.2\.1:4500/,
    /shop\/web ● exported milano, oslo - rome/,
  ])
    t.match(words, said)
  const ids = [...html.matchAll(/<section id="([a-z]+)"/g)].map(([, id]) => id)
  t.same(ids, ['problems', 'clusters', 'gateways', 'services', 'events'], 'no section that a broker cannot fill')
  t.same(
    [...html.matchAll(/<a href="#([a-z]+)">/g)].map(([, id]) => id),
    ids,
  )
  t.match(summaryOf(planLook(brokerFacts()).state.about), /2 of 3 members in contact/)
})

t.test('what members say is cut, printable, and never HTML', async (t) => {
  const evil = `<script>alert(1)</script>\u001b[2J\u202e${'x'.repeat(100_000)}`
  const facts = brokerFacts({
    target: evil,
    members: Array.from({ length: 1500 }, (_, i) =>
      member(`c${i}${evil}`, {
        ...{ labels: { [evil]: evil }, podCIDRs: [evil], notes: [evil], clashes: [evil], sinceMs: Number.NaN },
        reported: {
          ...{ versions: [evil], lanes: { up: 1, of: 1 }, exports: { count: 1, failed: 0 } },
          problems: [{ code: evil, severity: 'down', count: 1 }],
        },
      }),
    ),
  })
  const { state } = planLook(facts)
  t.ok(state.clusters.rows.length <= 1000 && JSON.stringify(state.clusters.rows).length <= 1 << 20)
  t.equal(state.clusters.rows.length + state.clusters.more, 1500)
  t.equal(state.problems.rows.length, 100)
  t.notMatch(JSON.stringify(state), /\\u001b|\u202e/)
  t.notMatch(wordsOf(facts), /<script/)
  t.ok(planSeveral([{ context: 'a', state, command: 'x' }]).clusters.rows.length <= 1000)
})
