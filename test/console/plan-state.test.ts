/** What the console shows: each section from facts, bounded and printable whatever a member says. */
import fc from 'fast-check'
import t from 'tap'
import type { DeniedFact } from '../../console/console.ts'
import { type ConsoleState, planLook, withFailure } from '../../console/state/state.ts'
import { DOWN, changeLinks } from '../explain/broken-member.ts'
import { SECRETS } from '../cli/bundle/planted-secrets.ts'
import { equalsGolden } from '../support/golden.ts'
import { NOW } from '../support/objects/member-facts.ts'
import { type Change, consoleFacts, sharesFrom, stateOf, withSilent } from './support/console-facts.ts'

const DENIED: DeniedFact = {
  at: '2026-11-25T11:59:00.000Z',
  reason: 'access-not-exported',
  from: { address: '244.1.0.9', cluster: 'paris' },
  to: { address: '10.42.1.5', service: 'shop/web' },
  protocol: 'tcp',
  port: 8081,
}

t.test('a healthy member, as the page gets it', async (t) => {
  const policy = {
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'TrafficPolicy',
    metadata: { name: 'near', namespace: 'shop' },
    spec: { targetRefs: [{ name: 'web0' }], order: [{ local: {} }, { any: {} }] },
  } as const
  const denied = { t: 'known', at: NOW, value: [DENIED] } as const
  const change: Change = (at) => at('ServiceImport').forEach(({ spec }) => (spec['type'] = 'ClusterSetIP'))
  const state = stateOf({ change, input: { denied, shares: sharesFrom({}, { policies: [policy] }) } })
  equalsGolden(t, `${JSON.stringify(state, undefined, 1)}\n`, 'console/healthy.json')
  t.equal(state.about.health, 'healthy')
  const [web] = state.services.rows
  t.equal(web?.policy, 'TrafficPolicy near')
  t.same(
    web?.shares.map(({ cluster, share }) => [cluster, share]),
    [
      ['milano', 10_000],
      ['paris', 0],
      ['tokyo', 0],
    ],
  )
})

t.test('a broken member: what is broken comes first, each with a command', async (t) => {
  const state = stateOf({ change: (at) => changeLinks(at, ({ cluster }) => cluster === 'paris', DOWN) })
  equalsGolden(t, `${JSON.stringify(state, undefined, 1)}\n`, 'console/broken.json')
  t.equal(state.about.health, 'down')
  t.same(
    state.clusters.rows.map(({ cluster, state: is }) => `${cluster} ${is}`),
    ['milano here', 'paris cut off', 'tokyo reached'],
  )
  t.equal(state.links.rows[0]?.state, 'down')
  for (const { commands } of state.problems.rows) t.match(commands.at(-1), /^sealane diagnose \w+ --context c1$/)
})

t.test('bytes a second of a link come from the counters of two reports', async (t) => {
  const at =
    (seconds: number, bytes: number): Change =>
    (kind) => {
      for (const { status } of kind('Gateway')) {
        status['heartbeatTime'] = new Date(Date.parse(NOW) - 10_000 + seconds * 1000).toISOString()
        for (const link of status.connections) Object.assign(link, { rxBytes: bytes, txBytes: 2 * bytes })
      }
    }
  const first = planLook(consoleFacts({ change: at(0, 1000) }))
  const rateOf = ({ state }: typeof first) => state.links.rows[0]?.traffic
  t.equal(rateOf(first), undefined, 'one report has no rate')
  const second = planLook(consoleFacts({ change: at(4, 9000) }), first)
  t.same(rateOf(second), { receivedPerSecond: 2000, sentPerSecond: 4000 })
  const paris = second.state.clusters.rows.find(({ cluster }) => cluster === 'paris')
  t.same(paris?.traffic, { receivedPerSecond: 8000, sentPerSecond: 16_000 }, 'of its four links')
  const again = planLook(consoleFacts({ change: at(4, 9000) }), second)
  t.same(rateOf(again), rateOf(second), 'the same report says nothing new')
  const idle = planLook(consoleFacts({ change: at(8, 9000) }), again)
  t.same(rateOf(idle), { receivedPerSecond: 0, sentPerSecond: 0 })
  const anew = planLook(consoleFacts({ change: at(9, 10) }), idle)
  t.equal(rateOf(anew), undefined, 'the counters began again')
  t.same(rateOf(planLook(consoleFacts({ change: at(10, 110) }), anew)), { receivedPerSecond: 100, sentPerSecond: 200 })
})

t.test('a relayed link says through whom', async (t) => {
  const { links } = stateOf({ change: (at) => changeLinks(at, () => true, { usingRelay: 'tokyo<b>\u001b' }) })
  t.match(links.rows[0], { way: 'relay', relay: 'tokyo<b>?' })
})

t.test('every service has its calls, also where the section of calls has no place for them', async (t) => {
  const busy = Array.from({ length: 300 }, (_, i) => ({ name: `x/s${i}`, callsPerSecond: 9, bytesPerSecond: 1 }))
  const calls = [...busy, { name: 'shop/web0', callsPerSecond: 0.5, bytesPerSecond: 1 }].map((one) => {
    return { ...one, recent: { refused: one.name === 'shop/web0' ? 0 : 1, unanswered: 0 } }
  })
  const flows = { t: 'known', at: NOW, value: { lines: [], calls, sampled: 20, problems: [] } } as const
  const state = stateOf({ input: { flows } })
  t.notOk(state.calls.rows.some(({ service }) => service === 'shop/web0'))
  t.same(state.services.rows.find(({ name }) => name === 'web0')?.calls, { perSecond: 0.5, errors: 0 })
})

t.test('a link says since when it is as it is, once the console saw it change', async (t) => {
  const before = planLook(consoleFacts())
  t.ok(before.state.links.rows.every(({ since }) => since === undefined))
  const facts = consoleFacts({ change: (at) => changeLinks(at, ({ cluster }) => cluster === 'paris', DOWN) })
  const down = planLook(facts, before)
  t.same(
    [...new Set(down.state.links.rows.map(({ cluster, since }) => `${cluster} ${since ?? '-'}`))],
    ['paris 2026-11-25T12:00:00Z', 'tokyo -'],
  )
  const later = { ...(facts.facts as object), takenAt: '2026-11-25T12:00:01Z' }
  t.equal(planLook({ ...facts, facts: later }, down).state.links.rows[0]?.since, '2026-11-25T12:00:00Z')
})

t.test('a kind without an answer: its sections stay with their age, and no link changes', async (t) => {
  const first = planLook(consoleFacts())
  const [one, two] = ['2026-11-25T12:00:02Z', '2026-11-25T12:00:04Z']
  const silent = planLook(withSilent(consoleFacts(), ['Gateway'], one), first)
  const stale = { at: '2026-11-25T12:00:00Z', why: 'Gateway: no answer within 5s' }
  const again = planLook(withSilent(consoleFacts(), ['Gateway'], two), silent)
  for (const { state } of [silent, again]) {
    for (const name of ['clusters', 'gateways', 'links'] as const) {
      t.same(state[name], { ...first.state[name], stale }, name)
    }
    t.notOk('stale' in state.services)
    t.same(state.about.counts, { ...first.state.about.counts, problems: state.about.counts.problems })
    t.ok(state.problems.rows.some(({ reason }) => reason === 'NotAnswered'))
  }
  t.equal(again.state.times.facts, two)
  const back = planLook(consoleFacts(), again).state
  t.same({ ...back, events: first.state.events }, first.state)
})

t.test('a kind that was never read: no rows of another time, and no link that changed when it is', async (t) => {
  const facts = withSilent(consoleFacts(), ['Gateway', 'Membership'])
  const later = planLook(facts, planLook(facts))
  t.same(later.state.links, { ...later.state.links, rows: [], stale: { why: later.state.links.stale?.why } })
  t.ok(planLook(consoleFacts(), later).state.links.rows.every(({ since }) => since === undefined))
})

t.test('a Membership without an answer: the page keeps the name of the cluster', async (t) => {
  const { state } = planLook(withSilent(consoleFacts(), ['Membership']), planLook(consoleFacts()))
  t.equal(state.about.cluster, 'milano')
})

t.test('links beyond the limit of the section: one that comes into it has not changed', async (t) => {
  const others = Array.from({ length: 600 }, (_, i) => `m${i}`)
  const first = planLook(consoleFacts({ others, services: 0 }))
  t.ok(first.state.links.more > 0)
  const shown = new Set(first.state.links.rows.map(({ cluster }) => cluster))
  const hidden = others.find((name) => !shown.has(name)) ?? ''
  const fewer = planLook(consoleFacts({ others: [hidden], services: 0 }), first)
  t.ok(fewer.state.links.rows.length > 0 && fewer.state.links.rows.every(({ since }) => since === undefined))
})

t.test('a refused packet names a pod with its namespace', async (t) => {
  const value: readonly DeniedFact[] = [
    { ...DENIED, to: { address: '10.42.1.5', namespace: 'shop', pod: 'web-0' } },
    { ...DENIED, to: { address: '10.42.1.5', namespace: 'shop', service: 'shop/web', pod: 'web-0' } },
  ]
  const { denied } = stateOf({ input: { denied: { t: 'known', at: NOW, value } } })
  t.same(
    denied.rows.map(({ to }) => to),
    ['10.42.1.5 shop/web-0', '10.42.1.5 shop/web web-0'],
  )
})

t.test('facts that are no longer renewed', async (t) => {
  const state = withFailure(stateOf(), '2026-11-25T12:00:05Z', 'the API server\u001b[2J is away')
  t.same(state.about.failing, { since: '2026-11-25T12:00:05Z', why: 'the API server?[2J is away' })
})

t.test('a file: other commands, and what it does not have', async (t) => {
  const { about, links, denied } = stateOf({ input: { live: false, flags: '--bundle f.tar.gz' } })
  t.equal(about.live, false)
  t.equal(links.command, 'sealane status -o wide --bundle f.tar.gz')
  t.equal(denied.command, 'sealane diagnose services --bundle f.tar.gz')
  t.equal(denied.note, 'no samples here')
})

const HOSTILE: Readonly<Record<string, string>> = {
  html: '<img src=x onerror=alert(1)>',
  script: '</script><script>alert(1)</script>',
  ansi: '\u001b[2J\u001b]0;owned\u0007',
  'right to left': 'web\u202egnp.\u2066exe\u200f',
  lines: 'a\r\nb\u2028c\u0085d\u0000',
  surrogate: 'x\ud800',
  long: 'n'.repeat(10 << 20),
}

/** More than any section may have, with its commands and notes. */
const MAX_STATE = 8 << 20
const STEERING = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]/

function textsOf(value: unknown): string[] {
  if (typeof value === 'string') return [value]
  return typeof value === 'object' && value !== null ? Object.values(value).flatMap(textsOf) : []
}

function isSafe(state: ConsoleState): boolean {
  const texts = textsOf(state)
  return texts.every((text) => text.length <= 400 && !STEERING.test(text))
}

for (const [what, text] of Object.entries(HOSTILE)) {
  t.test(`a hostile member: ${what}`, async (t) => {
    const state = stateOf({
      change: (at) => {
        const [, other] = at('Cluster')
        if (other !== undefined) Object.assign(other.spec, { id: text, labels: { [text]: text } })
        changeLinks(at, ({ cluster }) => cluster === 'paris', { ...DOWN, message: text, usingAddress: text })
        for (const service of at('ServiceImport')) service.metadata.name = text
        for (const service of at('ServiceExport')) service.metadata.name = text
        for (const slice of at('EndpointSlice')) Object.assign(slice.metadata, { labels: { [text]: text } })
      },
      input: {
        denied: { t: 'known', at: text, value: [{ ...DENIED, reason: text, to: { address: text, pod: text } }] },
        shares: {
          t: 'known',
          at: text,
          value: { slices: [{}] as never, policies: [], clusterPolicies: [], accessPolicies: [] },
        },
        flags: `--context ${text}`,
      },
    })
    t.ok(isSafe(state), 'every text is short and printable')
    t.ok(JSON.stringify(state).length < 200_000)
    t.ok(state.clusters.rows.length > 0, 'the others are still shown')
  })
}

t.test('a section has a limit, and says how many it leaves out', async (t) => {
  const value = Array.from({ length: 5000 }, (_, i) => ({ ...DENIED, at: String(i).padStart(6, '0') }))
  const others = Array.from({ length: 1100 }, (_, i) => `m${i}`)
  const state = stateOf({ others: ['paris'], services: 2100, input: { denied: { t: 'known', at: NOW, value } } })
  const { clusters } = stateOf({ others, gateways: 1, services: 0 })
  t.same([state.denied.rows.length, state.denied.more], [200, 4800])
  t.equal(state.denied.rows[0]?.at, '004999', 'the latest are kept')
  t.equal(clusters.rows.length + clusters.more, 1101)
  t.equal(state.services.rows.length + state.services.more, 2100)
  for (const { rows, more } of [clusters, state.services]) t.ok(rows.length > 900 && more > 0)
  t.ok(JSON.stringify(state).length < MAX_STATE)
})

t.test('secrets that others wrote into objects stay there', async (t) => {
  const state = stateOf({
    change: (at) => {
      for (const kind of ['Cluster', 'Gateway', 'ServiceImport', 'ServiceExport', 'Node', 'Membership'] as const) {
        for (const object of at(kind)) {
          Object.assign(object.metadata, { annotations: { note: SECRETS.join(' ') }, uid: SECRETS[0] })
          Object.assign(object, { data: SECRETS, spec: { ...object.spec, secret: SECRETS } })
        }
      }
      for (const pod of at('Pod'))
        Object.assign(pod.spec, { env: SECRETS, containers: [{ image: 'a', args: SECRETS }] })
      for (const endpoint of at('Endpoint')) Object.assign(endpoint.spec, { token: SECRETS })
    },
  })
  const text = JSON.stringify(state)
  for (const secret of SECRETS) t.notOk(text.includes(secret), secret.slice(0, 12))
  t.notMatch(text, /publicKey/)
})

t.test('never throws, and every text is safe, whatever the facts are', async (t) => {
  const shares = fc.oneof(
    fc.constant({ t: 'none', why: 'x' } as const),
    fc.anything().map((value) => ({ t: 'known', at: '', value: { slices: [value], policies: [value] } })),
  )
  fc.assert(
    fc.property(fc.anything(), shares, (facts, answer) => {
      const input = { ...consoleFacts(), facts, shares: answer as never }
      return isSafe(planLook(input).state)
    }),
    { numRuns: 200 },
  )
  t.pass('200 runs')
})

t.test('clusters that the topology does not link are in the document, bounded', async (t) => {
  t.equal(stateOf().about.notLinked, undefined)
  const ids = Array.from({ length: 20 }, (_, i) => `far${i}:NotLinkedByTopology`)
  const { about } = stateOf({
    change: (at) => {
      for (const { metadata } of at('Cluster'))
        Object.assign(metadata, { annotations: { 'sealane.io/known-members': ['milano', ...ids].join(',') } })
    },
  })
  t.match(about.notLinked, { reason: 'NotLinkedByTopology', more: 4 })
  t.equal(about.notLinked?.clusters.length, 16)
})
